"""The table and the figures of Tiresias that a benchmark replays, each row in its own way."""

from __future__ import annotations

from benchmarks.papers.tiresias_tables import (
    IDEAL,
    TABLE_5,
    G,
    L,
    queues,
    run,
    sensitivity,
    settings_of,
)

from dlq_simulator.workload import Trace, TraceJob

TRACE = Trace.of(
    "two jobs",
    [
        TraceJob(job_id=str(number), submit_time_s=number, num_gpus=2, duration_s=1800)
        for number in range(2)
    ],
)


def test_every_bar_of_the_figures_is_a_policy_of_its_own() -> None:
    for policy in (L, G):
        rows = dict(sensitivity(policy))
        assert len(rows) == 11
        assert next(iter(rows)) == "(2, 1h)"
        told = {settings_of(row.policy, row.words, TRACE).policy.ordering for row in rows.values()}
        assert len(told) == len(rows)


def test_hours_are_gpu_hours() -> None:
    assert queues(1, 2) == "thresholds=3600,7200"
    found = settings_of(L, (queues(0.5),), TRACE)
    assert found.policy.ordering.thresholds == (1800.0,)


def test_gittins_knows_the_services_of_its_trace() -> None:
    ordering = settings_of(G, (), TRACE).policy.ordering
    assert ordering.refresh is None, "it learns nothing more"


def test_switches_of_gandiva_cost_nothing_where_no_preemption_does() -> None:
    assert settings_of("gandiva", (), TRACE).resume_s == 1.0
    ideal = settings_of("gandiva", IDEAL, TRACE)
    assert (ideal.resume_s, ideal.policy.placement.name) == (0.0, "count")


def test_a_row_is_replayed_on_a_drawn_workload() -> None:
    found = run(51, TABLE_5["Best-effort"].policy, ())
    assert found.preemptions == 0
    assert found.median < found.avg < found.p95 <= found.longest
