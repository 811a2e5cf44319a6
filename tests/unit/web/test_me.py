"""The first page: promises in danger, the next start, preemptions, and the widest start now."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from dlq.v1 import forecast_service_pb2 as wire
from dlq.v1 import job_pb2
from dlq_common.errors import InvalidRequest, QuotaExceeded, Unavailable
from dlq_common.text.wire import to_duration, to_timestamp
from dlq_web.line.methods import PublicMethod
from dlq_web.pages import me
from dlq_web.pages.foresee.start_now import MOST_QUESTIONS, StartNow, sizes_of, start_now
from dlq_web.pages.views import look_at
from support.wire_jobs import EPOCH_S, a_job

LOOK = look_at(EPOCH_S)


def promised(job_id: int, slack_s: float, risk: str = "") -> job_pb2.Job:
    job = a_job(job_id)
    job.promise.state, job.promise.risk, job.promise.detail = "guaranteed", risk, "it fits"
    job.promise.slack_duration.CopyFrom(to_duration(slack_s))
    return job


def test_promises_in_danger_come_by_their_slack_with_the_cheapest_fix() -> None:
    late = promised(3, -60.0)
    late.promise.fix, late.promise.fix_gpu_count = "fewer_gpus", 2
    found = me.dangers_of([promised(1, 900.0), promised(2, 60.0, "n1 is down"), late], LOOK)
    assert [(one.job_id, one.slack) for one in found] == [("3", "-00:01:00"), ("2", "00:01:00")]
    assert found[0].instead == "with 2 GPUs its deadline could be"
    assert found[1].words == "guaranteed, at risk: n1 is down"


def test_the_next_start_is_the_earliest_likely_one() -> None:
    later, sooner, unknown = a_job(1), a_job(2), a_job(3)
    for job, ahead_s in ((later, 900), (sooner, 300)):
        job.start_estimate.earliest_time.CopyFrom(to_timestamp(EPOCH_S + ahead_s / 2))
        job.start_estimate.likely_time.CopyFrom(to_timestamp(EPOCH_S + ahead_s))
    unknown.start_estimate.earliest_time.CopyFrom(to_timestamp(EPOCH_S + 1))
    assert me.next_start_of([later, sooner, unknown], LOOK) == (
        "2", "2", "≈ in 5m00s (2m30s or much later)",
    )  # fmt: skip
    assert me.next_start_of([unknown], LOOK) is None


def test_the_cost_of_preemptions_is_told_with_the_newest_first() -> None:
    jobs = [
        a_job(1, preemption_count=2, lost_gpu_seconds=30.0),
        a_job(2, preemption_count=1, lost_gpu_seconds=12.0),
    ]
    for number, job in enumerate(jobs):
        job.last_preemption.detail = f"left for job {number}"
        job.last_preemption.decide_time.CopyFrom(to_timestamp(EPOCH_S + number))
    assert me.lost_of(jobs) == (
        "taken off their GPUs 3 times, up to 42 GPU-seconds of work were lost"
    )
    assert [one.words for one in me.preempted_of(jobs, LOOK)] == [
        "left for job 1", "left for job 0",
    ]  # fmt: skip
    assert me.lost_of([a_job(3)]) == ""
    assert me.lost_of([a_job(3, preemption_count=1)]) == "taken off their GPUs once, no work lost"


@pytest.mark.parametrize("text", ["", "soon", "0", "-1h", "9999d"])
def test_a_length_is_a_span(text: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        me.span_of(text)
    assert error.value.field == "length"


@pytest.mark.parametrize(
    ("free", "sizes"), [(0, []), (1, [1]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])]
)
def test_sizes_are_powers_of_two_and_all_that_is_free(free: int, sizes: list[int]) -> None:
    assert sizes_of(free) == sizes


class FakeTwin:
    """Starts jobs up to a width at once, wider ones later, and refuses the widest."""

    def __init__(self, widest: int, *, refuses: int = 10**6, missing: str = "") -> None:
        self.widest, self.refuses, self.missing = widest, refuses, missing
        self.asked: list[int] = []

    async def call(self, method: PublicMethod, request: Any, timeout_s: float = 0.0) -> Any:
        gpus = request.spec.resources.gpu_count
        self.asked.append(gpus)
        if gpus >= self.refuses:
            raise QuotaExceeded("the quota is used up")
        start_s = EPOCH_S + (5.0 if gpus <= self.widest else 3600.0)
        answer = wire.EstimateJobResponse(missing=self.missing)
        answer.estimate_time.CopyFrom(to_timestamp(EPOCH_S))
        answer.start.likely_time.CopyFrom(to_timestamp(start_s))
        return answer

    def stream(self, method: PublicMethod, request: Any) -> AsyncGenerator[Any]:
        raise NotImplementedError


@pytest.mark.parametrize("widest", [0, 1, 2, 3, 64, 100, 1024, 8192])
async def test_the_widest_that_starts_now_is_found_in_a_handful_of_calls(widest: int) -> None:
    twin = FakeTwin(widest)
    found = await start_now(twin, 8192, 3600.0, LOOK)
    assert found.gpus == max([0, *(size for size in sizes_of(8192) if size <= widest)])
    assert len(twin.asked) <= MOST_QUESTIONS
    assert found.wider == (0 if widest == 8192 else max(1, 2 * found.gpus))


async def test_a_refusal_is_told_as_the_cause() -> None:
    found = await start_now(FakeTwin(99, refuses=4), 8, 3600.0, LOOK)
    assert found == StartNow(2, 4, "the quota is used up")


async def test_no_free_gpu_asks_nothing_and_no_forecast_says_so() -> None:
    twin = FakeTwin(8)
    assert (await start_now(twin, 0, 60.0, LOOK)).words == "no GPU is free"
    assert twin.asked == []
    found = await start_now(FakeTwin(8, missing="the twin was killed"), 8, 60.0, LOOK)
    assert (found.gpus, found.words) == (0, "no forecast: the twin was killed")


async def test_a_master_that_is_away_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: Any) -> Any:
        raise Unavailable("the master is away")

    monkeypatch.setattr(FakeTwin, "call", away)
    with pytest.raises(Unavailable):
        await start_now(FakeTwin(8), 8, 60.0, LOOK)
