"""The table and the figures of Tiresias that a benchmark replays, each row in its own way."""

from __future__ import annotations

from benchmarks.reproduce.case import Done
from benchmarks.reproduce.cases.tiresias.rules import CASES, IDEAL, LAS, figure, queues
from benchmarks.reproduce.runs.tiresias_rules import GANDIVA, GITTINS, settings_of, varied

from dlq_simulator.workload import Trace, TraceJob

TRACE = Trace.of(
    "two jobs",
    [
        TraceJob(job_id=str(number), submit_time_s=number, num_gpus=2, duration_s=1800)
        for number in range(2)
    ],
)


def test_every_bar_of_the_figures_is_a_policy_of_its_own() -> None:
    for policy in (LAS, GITTINS):
        rows = figure(policy)
        assert len(rows) == 11
        assert next(iter(rows)) == "(2, 1h)"
        told = {settings_of(name, words, TRACE).policy.ordering for name, words in rows.values()}
        assert len(told) == len(rows)


def test_hours_are_gpu_hours() -> None:
    assert queues(1, 2) == "thresholds=3600,7200"
    found = settings_of(LAS, (queues(0.5),), TRACE)
    assert found.policy.ordering.thresholds == (1800.0,)


def test_gittins_knows_the_services_of_its_trace() -> None:
    ordering = settings_of(GITTINS, (), TRACE).policy.ordering
    assert ordering.refresh is None, "it learns nothing more"


def test_switches_of_gandiva_cost_nothing_where_no_preemption_does() -> None:
    assert settings_of(GANDIVA, (), TRACE).resume_s == 1.0
    ideal = settings_of(GANDIVA, IDEAL, TRACE)
    assert (ideal.resume_s, ideal.policy.placement.name) == (0.0, "count")


def test_a_row_is_the_mean_over_the_seeds_of_its_ratio_to_the_first() -> None:
    (case,) = [case for case in CASES if case.name == "tiresias-figure-14"]
    words = list(case.parts((1, 2)))
    assert (len(words), words[1]["seed"]) == (22, 2)
    ones = {"avg": 1.0, "median": 1.0, "p95": 1.0, "longest": 1.0, "preemptions": 3}
    done = [Done(part, {**ones, "avg": 1.0 + place}) for place, part in enumerate(words)]
    row = case.table(done).rows["(2, 0.5h)"]
    assert row["avg"] == (3.0 / 1.0 + 4.0 / 2.0) / 2
    assert row["preemptions"] == 3


def test_a_row_is_replayed_on_a_drawn_workload() -> None:
    found = varied("best-effort", (), 51)
    assert found["preemptions"] == 0
    assert found["median"] < found["avg"] < found["p95"] <= found["longest"]
