"""In which queue a row stands, and where that queue stands among the others."""

from __future__ import annotations

import pytest

from dlq_simulator.errors import UsageError
from dlq_simulator.queues import TraceQueues
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import ReplaySettings, read_settings
from dlq_simulator.workload import Trace, TraceJob
from dlq_simulator.world.clusters import read_cluster


def a_row(name: str, vc: str, submit: float = 0) -> TraceJob:
    return TraceJob(job_id=name, submit_time_s=submit, num_gpus=1, duration_s=100, vc=vc)


def by_vc(quota: str) -> ReplaySettings:
    (chosen,) = read_settings(["yarn-cs"], [f"quota={quota}", "queues=vc"])
    return chosen


def test_queues_stand_in_the_order_of_their_quotas_and_all_others_behind_as_one() -> None:
    rows = [a_row(vc, vc) for vc in ("d", "a", "c", "b")]
    queues = TraceQueues(Trace.of("t", rows), by_vc("b:0.25,a:0.25").policy, "vc")
    found = {row.vc: queues.of(row) for row in rows}
    assert found == {"b": ("b", 0), "a": ("a", 1), "c": ("c", 2), "d": ("d", 2)}


def test_queues_without_a_quota_are_one_line_in_the_order_of_arrival() -> None:
    """Half of two GPUs is theirs: d came before c, and neither name nor quota changes that."""
    rows = [a_row("1", "d"), a_row("2", "e", 1), a_row("3", "c", 2), a_row("4", "q", 3)]
    chosen = by_vc("q:0.5")
    outcomes = replay(Trace.of("t", rows), read_cluster("1x2"), chosen).outcomes
    assert [outcome.start_s for outcome in outcomes] == [0, 100, 200, 3]


def test_a_policy_without_quotas_has_one_queue() -> None:
    (chosen,) = read_settings(["fifo"], [])
    row = a_row("1", "a")
    assert TraceQueues(Trace.of("t", [row]), chosen.policy, "vc").of(row) == ("default", 0)


def test_the_queue_with_a_floor_comes_first_and_its_jobs_start_at_once() -> None:
    rows = [*(a_row(str(number), "batch") for number in range(4)), a_row("d", "desk", 1)]
    (chosen,) = read_settings(["dlq"], ["queue_floor=desk:1", "queues=vc"])
    queues = TraceQueues(Trace.of("t", rows), chosen.policy, "vc")
    assert [queues.of(row) for row in rows[3:]] == [("batch", 1), ("desk", 0)]
    outcomes = replay(Trace.of("t", rows), read_cluster("1x2"), chosen).outcomes
    assert outcomes[4].start_s == 1
    assert sorted(outcome.start_s for outcome in outcomes[:4])[:2] == [0, 100]


def test_a_floor_of_a_queue_that_no_job_is_in_is_an_error() -> None:
    (chosen,) = read_settings(["dlq"], ["queue_floor=desk:1", "queues=vc"])
    with pytest.raises(UsageError, match="queue 'desk', which has a floor"):
        TraceQueues(Trace.of("t", [a_row("1", "batch")]), chosen.policy, "vc")
