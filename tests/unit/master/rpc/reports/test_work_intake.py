"""Work times of steps as agents send them: sums that no times can have say nothing."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest

from dlq.v1 import agent_service_pb2 as wire
from dlq_common.errors import InvalidRequest
from dlq_master.policy.stragglers import WorkTimes
from dlq_master.rpc.reports.agent_intake import (
    MOST_MEMORY_BYTES,
    MOST_RANKS,
    progresses_of,
    report_of,
    reports_of,
    unexplained_of,
    uses_of,
)
from dlq_nodeagent.line.wire import encode
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import Fence, Heartbeat, RankUse, StepWork


def use(**work: Any) -> wire.RankUse:
    made = wire.RankUse(job_id="7", node_rank=2)
    made.fence.epoch = made.fence.attempt = 1
    if work:
        made.work.CopyFrom(wire.StepWork(**work))
    return made


def test_the_sums_of_an_agent_arrive_as_they_are() -> None:
    sent = RankUse(
        key=RankKey("7", 1, 2),
        fence=Fence(1, 1),
        span_s=30.0,
        memory_bytes=3 << 30,
        work=StepWork(step_count=3, log_sum=-1.5, log_square_sum=2.0, from_traffic=True),
    )
    beat = encode(Heartbeat(sequence=1, progress=(), rank_uses=(sent,)), wire.NodeFacts())
    (told,) = uses_of(beat.heartbeat.rank_uses)
    assert told.work == WorkTimes(3, -1.5, 2.0)
    assert told.traffic
    assert (told.node_rank, told.memory_bytes) == (2, 3 << 30)


def test_an_agent_of_before_tells_none() -> None:
    (told,) = uses_of([use()])
    assert (told.work, told.traffic, told.memory_bytes) == (None, False, None)


@pytest.mark.parametrize(("said", "taken"), [(-5, 0), ((1 << 63) - 1, MOST_MEMORY_BYTES)])
def test_the_memory_of_a_wide_job_fits_whatever_its_nodes_say(said: int, taken: int) -> None:
    lying = use()
    lying.memory_bytes = said
    (told,) = uses_of([lying])
    assert told.memory_bytes == taken


@pytest.mark.parametrize(
    "work",
    [
        {"step_count": 0, "log_sum": 0.0, "log_square_sum": 0.0},
        {"step_count": -5, "log_sum": 0.0, "log_square_sum": 0.0},
        {"step_count": 1 << 40, "log_sum": 0.0, "log_square_sum": 0.0},
        {"step_count": 4, "log_sum": nan, "log_square_sum": 1.0},
        {"step_count": 4, "log_sum": 1.0, "log_square_sum": nan},
        {"step_count": 4, "log_sum": inf, "log_square_sum": inf},
        {"step_count": 4, "log_sum": 1.0, "log_square_sum": inf},
        {"step_count": 4, "log_sum": 400.0, "log_square_sum": 1e6},
        {"step_count": 4, "log_sum": 8.0, "log_square_sum": 1.0},
    ],
)
def test_impossible_sums_say_nothing(work: dict[str, float]) -> None:
    (told,) = uses_of([use(**work)])
    assert told.work is None


@pytest.mark.parametrize(
    ("take", "field"),
    [
        (lambda told: reports_of([wire.RankReport()] * told), "ranks"),
        (lambda told: unexplained_of([wire.UnexplainedRank()] * told), "unexplained"),
        (lambda told: progresses_of([wire.RankProgress()] * told), "progress"),
        (lambda told: uses_of([wire.RankUse()] * told), "rank_uses"),
    ],
)
def test_what_a_node_sends_is_counted_before_it_is_read(
    take: Callable[[int], object], field: str
) -> None:
    """A message of 5 MiB has hundreds of thousands of them. Each of these would be refused."""
    with pytest.raises(InvalidRequest, match="more than 10000") as refused:
        take(MOST_RANKS + 1)
    assert refused.value.field == field


def test_a_checkpoint_with_an_endless_path_is_none_and_its_node_stays() -> None:
    report = wire.RankReport(job_id="7", phase=wire.RANK_PHASE_STARTED)
    report.fence.epoch = report.fence.attempt = 1
    report.checkpoint.path = "/" + "x" * 5_000
    assert report_of(report).checkpoint is None
    report.checkpoint.path = "/ckpt"
    found = report_of(report).checkpoint
    assert found is not None
    assert found.path == "/ckpt"
