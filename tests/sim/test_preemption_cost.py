"""What the default charges for a preemption, against a schedule worked out by hand."""

from __future__ import annotations

from dlq_simulator.replay.engine import replay
from dlq_simulator.results.report import Result
from dlq_simulator.settings import read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import ClusterSpec, NodeGroup

ONE_GPU = ClusterSpec(name="1x1", groups=(NodeGroup(count=1, gpus=1),))


def run(rows: list[tuple[int, int]], *settings: str, policy: str = "tiresias-las") -> Result:
    """Jobs of one GPU on one GPU; rows are (submit, duration)."""
    trace = Trace.of(
        "by hand",
        [
            TraceJob(job_id=str(number), submit_time_s=s, num_gpus=1, duration_s=d)
            for number, (s, d) in enumerate(rows)
        ],
    )
    (chosen,) = read_settings([policy], settings)
    return replay(trace, ONE_GPU, chosen)


def test_work_is_taken_at_the_boundary_saved_before_it_and_resumed_after() -> None:
    long, short = run([(0, 1000), (50, 100)], "thresholds=100").outcomes
    # Demoted at 100 s, but nothing is taken before 300 s; it saves from 270 s on.
    assert (short.start_s, short.finish_s, short.queue_s) == (300, 400, 250)
    # Back at 400 s, it resumes until 430 s and has 730 s of work left.
    assert (long.finish_s, long.preemptions, long.overhead_s) == (430 + 730, 1, 60)
    assert long.queue_s == 100


def test_free_preemption_takes_work_at_the_threshold() -> None:
    long, short = run([(0, 1000), (50, 100)], "thresholds=100", "preempt=free").outcomes
    assert (short.start_s, short.finish_s) == (100, 200)
    assert (long.finish_s, long.preemptions, long.overhead_s) == (1100, 1, 0)


def test_a_job_that_ends_before_its_save_would_begin_is_not_preempted() -> None:
    long, short = run([(0, 265), (50, 100)], "thresholds=100", "save_s=30").outcomes
    assert (long.finish_s, long.preemptions) == (265, 0)
    assert short.start_s == 265


def test_a_save_longer_than_usual_starts_earlier_and_costs_more() -> None:
    long, short = run([(0, 1000), (50, 100)], "thresholds=100", "save_s=120").outcomes
    assert short.start_s == 300
    assert (long.finish_s, long.overhead_s) == (400 + 30 + (1000 - 180), 150)


def test_a_policy_that_never_preempts_pays_nothing_and_skips_the_grid() -> None:
    result = run([(0, 1000), (50, 100)], policy="best-effort")
    assert [outcome.finish_s for outcome in result.outcomes] == [1000, 1100]
    assert (result.metrics.preemptions, result.metrics.overhead_gpu_s) == (0, 0)


def test_a_job_too_wide_for_every_node_set_is_refused_and_the_rest_runs() -> None:
    wide = TraceJob(job_id="wide", submit_time_s=0, num_gpus=2, duration_s=5)
    narrow = TraceJob(job_id="narrow", submit_time_s=1, num_gpus=1, duration_s=5)
    (chosen,) = read_settings(["fifo"], [])
    result = replay(Trace.of("t", [wide, narrow]), ONE_GPU, chosen)
    assert [outcome.job.job_id for outcome in result.outcomes] == ["narrow"]
    assert result.metrics.refused == 1
    assert "wide" in result.notes[0]
