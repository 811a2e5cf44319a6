"""PROMOTEKNOB on the 480 jobs: the released program's figures from its rules, and ours beside
them.
"""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import mean, median

import pytest

from dlq_simulator.replay.engine import replay as simulate
from dlq_simulator.settings import read_settings
from dlq_simulator.traces import read_trace
from dlq_simulator.world.clusters import read_cluster
from support.reference_las import Ran, Rules, replay

pytestmark = pytest.mark.long(
    "unit/master/policy/order/test_las.py",
)

DATA = Path(__file__).parents[1] / "data" / "traces"
LIMITS = (3250, 7200)
KNOBS = {"dlas-gpu": 0, "dlas-gpu-1": 1, "dlas-gpu-8": 8}
TRACE = DATA / "own_480_job.csv"
# Average and median JCT, makespan, preemptions.
Figures = tuple[float, float, float, int]


def released(policy: str) -> Figures:
    with (DATA / "tiresias_reference_results.csv").open(newline="") as file:
        (row,) = (
            row
            for row in csv.DictReader(file)
            if (row["trace"], row["policy"], row["gpus"]) == ("own_480_job", policy, "60")
        )
    avg, middle, makespan = (float(row[key]) for key in ("avg_jct", "median_jct", "makespan"))
    return avg, middle, makespan, int(row["preemptions"])


def by_the_rules(knob: int, *, late: bool) -> list[Ran]:
    with TRACE.open(newline="") as file:
        rows = [
            (int(row["submit_time"]), int(row["num_gpu"]), int(row["duration"]))
            for row in csv.DictReader(file)
        ]
    return replay(rows, Rules(gpus=60, limits=LIMITS, knob=knob, late=late))


def figures(jobs: list[Ran]) -> Figures:
    jcts = [job.finish - job.submit for job in jobs]
    makespan = max(job.finish for job in jobs) - min(job.submit for job in jobs)
    return round(mean(jcts), 2), median(jcts), makespan, sum(job.preemptions for job in jobs)


def ours(knob: int, to: str) -> list[tuple[float, int]]:
    """End and preemptions of every job."""
    words = ["place=count", "preempt=free", "thresholds=3250,7200", f"promote_knob={knob}"]
    (chosen,) = read_settings(["tiresias-las"], [*words, f"promote_to={to}"])
    outcomes = simulate(read_trace(str(TRACE)), read_cluster("15x4"), chosen).outcomes
    return [(outcome.finish_s, outcome.preemptions) for outcome in outcomes]


@pytest.mark.parametrize("policy", list(KNOBS))
def test_the_released_rules_give_the_released_figures(policy: str) -> None:
    assert figures(by_the_rules(KNOBS[policy], late=True)) == released(policy)


@pytest.mark.parametrize(
    ("knob", "expected"), [(1, (2903.22, 689.0, 34863, 566)), (8, (3171.70, 654.5, 34231, 692))]
)
def test_promotion_to_the_tail_differs_from_them_by_the_late_demotion_alone(
    knob: int, expected: Figures
) -> None:
    in_time = by_the_rules(knob, late=False)
    assert figures(in_time) == expected
    assert ours(knob, "tail") == [(job.finish, job.preemptions) for job in in_time]


@pytest.mark.parametrize(("knob", "average", "preemptions"), [(1, 3074.44, 896), (8, 3464.10, 878)])
def test_promotion_to_the_head_with_a_reservation_is_our_own_rule(
    knob: int, average: float, preemptions: int
) -> None:
    found = ours(knob, "head")
    submits = [job.submit for job in by_the_rules(0, late=False)]
    jcts = [end - submit for (end, _), submit in zip(found, submits, strict=True)]
    assert round(mean(jcts), 2) == average
    assert sum(count for _, count in found) == preemptions
