"""Figures of a replay, against values worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq_simulator.metrics import Billed, ReplayOutcome, mean, measure, percentile
from dlq_simulator.workload import TraceJob


def an_outcome(
    finish: float, *, start: float = 0, queue: float = 0, overhead: float = 0, **job: Any
) -> ReplayOutcome:
    given_job = {"job_id": "1", "submit_time_s": 0, "num_gpus": 1, "duration_s": finish, **job}
    return ReplayOutcome(
        job=TraceJob(**given_job),
        start_s=start,
        finish_s=finish,
        queue_s=queue,
        overhead_s=overhead,
        preemptions=0,
    )


def test_two_jobs_give_the_figures_worked_out_by_hand() -> None:
    first = an_outcome(100, num_gpus=2, duration_s=100)
    second = an_outcome(200, start=100, queue=90, submit_time_s=10, duration_s=100)
    figures = measure([first, second], gpus=2)
    assert (figures.jobs, figures.avg_jct_s, figures.median_jct_s) == (2, 145, 145)
    assert figures.p95_jct_s == 185.5
    assert (figures.avg_queue_s, figures.makespan_s) == (45, 200)
    assert figures.gpu_utilization == 300 / (2 * 200)
    assert figures.be_avg_jct_s == 145
    assert figures.wdmr is figures.slo_met_ratio is figures.cost is None


def test_makespan_counts_from_the_first_submit() -> None:
    assert measure([an_outcome(150, submit_time_s=50)], gpus=1).makespan_s == 100


def test_a_replay_that_finished_nothing_has_no_averages() -> None:
    figures = measure([], gpus=4, refused=3)
    assert (figures.jobs, figures.refused, figures.preemptions) == (0, 3, 0)
    assert figures.avg_jct_s is figures.makespan_s is figures.gpu_utilization is None


def test_deadline_misses_are_weighed_by_the_reward_that_was_lost() -> None:
    steps = ((100.0, 100.0), (110.0, 80.0), (120.0, 50.0), (150.0, 20.0))
    on_time, third_step, too_late = (
        an_outcome(finish, kind="soft", soft_steps=steps) for finish in (100, 115, 151)
    )
    strict_miss = an_outcome(11, kind="strict", deadline_s=10)
    figures = measure([on_time, third_step, too_late, strict_miss], gpus=1)
    assert figures.wdmr == pytest.approx((0 + 50 / 99 + 1 + 1) / 4, abs=1e-6)
    assert figures.slo_met_ratio == 0.25
    assert figures.be_avg_jct_s is None


def test_the_papers_example_of_five_jobs_gives_half() -> None:
    """facts/simulators.md 4.7: rewards 100, 80, 50, 20, 1 make a miss rate of 0.50303."""
    steps = ((10.0, 100.0), (20.0, 80.0), (30.0, 50.0), (40.0, 20.0))
    outcomes = [an_outcome(t, kind="soft", soft_steps=steps) for t in (5, 15, 25, 35, 45)]
    assert measure(outcomes, gpus=1).wdmr == pytest.approx(0.50303, abs=1e-5)


def test_lateness_costs_its_weight_a_second_and_being_early_earns_nothing() -> None:
    outcomes = [
        an_outcome(100, due_s=60, weight=0.5),
        an_outcome(100, due_s=90),
        an_outcome(100, due_s=300, weight=9),
        an_outcome(100),
    ]
    assert measure(outcomes, gpus=1).tardiness_cost == 40 * 0.5 + 10
    assert measure(outcomes[3:], gpus=1).tardiness_cost is None


def test_overhead_is_counted_on_every_gpu_that_was_held_for_it() -> None:
    outcomes = [an_outcome(100, num_gpus=8, overhead=60), an_outcome(100, num_gpus=3, overhead=5)]
    assert measure([*outcomes, an_outcome(9)], gpus=16).overhead_gpu_s == 8 * 60 + 3 * 5


def test_the_reclaim_ratio_is_over_all_submitted_jobs_the_refused_ones_too() -> None:
    """Aryl's table 5: preemptions by reclaimed servers over jobs submitted."""
    billed = Billed(gpu_seconds=400, reclaimed=2)
    figures = measure([an_outcome(100), an_outcome(100)], gpus=4, refused=3, billed=billed)
    assert figures.reclaim_preemption_ratio == 2 / 5
    assert measure([], gpus=4, refused=4, billed=billed).reclaim_preemption_ratio == 2 / 4
    assert measure([], gpus=4, billed=billed).reclaim_preemption_ratio is None


def test_no_values_have_no_mean_and_no_percentile() -> None:
    assert mean([]) is None
    assert percentile([], 95) is None


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=50), st.sampled_from([50, 95, 99]))
def test_percentiles_agree_with_numpy(values: list[int], percent: int) -> None:
    assert percentile(values, percent) == pytest.approx(np.percentile(values, percent), abs=1e-5)
