"""Start ranges over the wire: who may ask for what, and that not to know is no error."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlq.v1 import forecast_pb2
from dlq.v1 import forecast_service_pb2 as wire
from dlq.v1 import job_service_pb2 as jobs
from dlq.v1.forecast_service_pb2_grpc import ForecastServiceStub
from dlq.v1.job_pb2 import DeadlineStep, JobSpec
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.pki import Role
from dlq_common.text.wire import from_duration, from_timestamp, to_duration
from dlq_master.control.forecast.accuracy import Quality
from dlq_master.control.forecast.forecasts import MOST_QUESTIONS, NOT_SUBMITTED
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes.node import Gpu
from dlq_master.planner.forecasts import Changes, Compared, Forecast, Range, StartEstimate
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.calls.reads import ENCODED
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house

pytestmark = pytest.mark.integration
SOON = Range(2_000.0, 2_500.0, math.inf)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


def stub(house: RpcHouse, name: str = "alice", role: Role = Role.USER) -> Any:
    return ForecastServiceStub(house.channel_as(name, role))


def a_spec(**fields: Any) -> JobSpec:
    spec = JobSpec(name="train", command=["true"], **fields)
    spec.resources.gpu_count = 1
    return spec


async def submitted(house: RpcHouse, name: str = "alice") -> str:
    line = JobServiceStub(house.channel_as(name, Role.USER))
    request = jobs.SubmitJobRequest(request_id=f"{name}-1", spec=a_spec())
    answer = await line.SubmitJob(request, timeout=DEADLINE_S)
    return str(answer.job.job_id)


async def estimate(house: RpcHouse, name: str = "alice", **asked: Any) -> Any:
    request = wire.EstimateJobRequest(**asked)
    return await stub(house, name).EstimateJob(request, timeout=DEADLINE_S)


async def test_a_range_is_told_as_far_as_it_is_known(house: RpcHouse) -> None:
    house.foresight.told = StartEstimate(1_000.0, SOON, None, "family")
    answer = await estimate(house, job_id=await submitted(house))
    assert from_timestamp(answer.start.earliest_time) == 2_000.0
    assert from_timestamp(answer.start.likely_time) == 2_500.0
    assert not answer.start.HasField("latest_time")
    assert not answer.HasField("end")
    assert (answer.basis, answer.missing) == ("family", "")
    assert from_timestamp(answer.estimate_time) == 1_000.0


async def test_not_to_know_is_no_error(house: RpcHouse) -> None:
    answer = await estimate(house, job_id=await submitted(house))
    assert answer.missing == "the twin was killed"
    assert not answer.HasField("start")
    assert answer.job.name == "train"


async def test_a_spec_is_looked_at_and_not_accepted(house: RpcHouse) -> None:
    house.foresight.told = StartEstimate(1_000.0, SOON, SOON, "guess")
    answer = await estimate(house, spec=a_spec())
    (job,) = house.foresight.asked
    assert isinstance(job, Job)
    assert (job.job_id, job.name, job.user) == (NOT_SUBMITTED, "train", "alice")
    assert answer.HasField("start")
    assert house.control.published.all_jobs == {}


@pytest.mark.parametrize(
    ("judged", "promised", "state"),
    [(True, 0, "guaranteed"), (True, None, "unguaranteed"), (False, None, "")],
)
async def test_the_verdict_of_the_forecast_is_told_for_a_spec_with_deadlines(
    house: RpcHouse, judged: bool, promised: int | None, state: str
) -> None:
    house.foresight.told = StartEstimate(
        1_000.0, SOON, SOON, "guess", judged=judged, promised=promised
    )
    due = DeadlineStep(due_duration=to_duration(3_600.0), reward=100.0)
    answer = await estimate(house, spec=a_spec(deadlines=[due]))
    assert answer.promise_state == state
    assert answer.HasField("promised_time") is (promised is not None)
    without = await estimate(house, spec=a_spec())
    assert without.promise_state == ""


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"job_id": "1", "spec": a_spec()},
        {"job_id": "x"},
        {"spec": a_spec(queue="\n")},
        {"spec": a_spec(), "wait_duration": to_duration(0.0)},
        {"spec": a_spec(), "wait_duration": to_duration(61.0)},
    ],
    ids=str,
)
async def test_what_cannot_be_meant_is_refused(house: RpcHouse, asked: dict[str, Any]) -> None:
    call = stub(house).EstimateJob(wire.EstimateJobRequest(**asked), timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.INVALID_ARGUMENT
    assert house.foresight.asked == []


async def test_nobody_is_told_of_other_peoples_jobs(house: RpcHouse) -> None:
    request = wire.EstimateJobRequest(job_id=await submitted(house, "bob"))
    call = stub(house).EstimateJob(request, timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.NOT_FOUND


async def test_lists_tell_the_range_of_those_that_wait(house: RpcHouse) -> None:
    job_id = await submitted(house)
    house.control.published.start_ranges[JobId(int(job_id))] = SOON
    line = JobServiceStub(house.channel_as("alice", Role.USER))
    answer = await line.ListJobs(jobs.ListJobsRequest(), timeout=DEADLINE_S)
    (job,) = answer.jobs
    assert from_timestamp(job.start_estimate.likely_time) == 2_500.0


async def test_one_person_takes_a_quarter_of_the_questions_to_the_twin(
    house: RpcHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a page or a script of one user leaves room for those of others."""
    job_id, gate, bobs_turn = await submitted(house), asyncio.Event(), asyncio.Event()
    begun = list[str]()

    async def slow(job: Job, _patience_s: float) -> StartEstimate:
        begun.append(job.user)
        if job.user == "bob":
            bobs_turn.set()
        await gate.wait()
        return StartEstimate(1_000.0, SOON, SOON, "guess")

    monkeypatch.setattr(house.foresight, "estimate", slow)
    asks = [asyncio.ensure_future(estimate(house, job_id=job_id)) for _ in range(MOST_QUESTIONS)]
    other = await submitted(house, "bob")
    asks.append(asyncio.ensure_future(estimate(house, "bob", job_id=other)))
    await bobs_turn.wait()
    assert begun.count("alice") <= MOST_QUESTIONS // 4
    gate.set()
    assert all([(await ask).HasField("start") for ask in asks])


async def test_a_comparison_of_many_jobs_is_told_in_slices(
    house: RpcHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = list[int]()

    async def breathe(cost: int) -> None:
        costs.append(cost)

    monkeypatch.setattr(Call, "breathe", lambda _: breathe)
    starts = dict.fromkeys(map(JobId, range(1, 201)), SOON)
    house.foresight.compared = Compared(*[Forecast(1_000.0, starts, 9_000.0, 5)] * 2)
    request = wire.CompareForecastsRequest(policy="fifo")
    answer = await stub(house, "olga", Role.OPERATOR).CompareForecasts(request, timeout=DEADLINE_S)
    assert len(answer.starts) == 200
    assert sum(costs) >= 200 * ENCODED


async def test_how_good_ranges_were_is_for_everybody(house: RpcHouse) -> None:
    house.foresight.measured = Quality(12, 60.0, 600.0, -30.0, 0.75, 3_600.0)
    house.foresight.latest = Forecast(1_000.0, {JobId(1): SOON}, math.inf, 7, 0.5)
    request = wire.GetForecastQualityRequest()
    answer = await stub(house).GetForecastQuality(request, timeout=DEADLINE_S)
    assert (answer.job_count, answer.within_ratio) == (12, 0.75)
    assert from_duration(answer.late_median_duration) == -30.0
    assert (answer.world_count, answer.estimate_count) == (7, 1)


async def test_operators_ask_what_would_be_otherwise(house: RpcHouse) -> None:
    later = Range(2_000.0, 2_600.0, 2_700.0)
    house.foresight.compared = Compared(
        Forecast(1_000.0, {JobId(7): SOON}, math.inf, 1),
        Forecast(1_000.0, {JobId(7): later}, 9.0, 1),
    )
    nodes = house.control.published.all_nodes
    there = nodes[NodeId("gpu01")]
    nodes[NodeId("gpu01")] = there._replace(gpus=(Gpu(index=0, gpu_type="H100"),))
    operator = stub(house, "olga", Role.OPERATOR)
    asked = wire.CompareForecastsRequest(
        added_nodes=[wire.AddedNodes(node_count=2, gpu_count=4)],
        closed_node_ids=["gpu01"],
        policy="fifo",
    )
    answer = await operator.CompareForecasts(asked, timeout=DEADLINE_S)
    (one,) = answer.starts
    assert one.job_id == "7"
    assert from_timestamp(one.other_start.likely_time) == 2_600.0
    assert isinstance(one.start, forecast_pb2.TimeRange)
    (changes,) = house.foresight.asked
    assert isinstance(changes, Changes)
    assert [[gpu.gpu_type for gpu in node.gpus] for node in changes.more] == [["H100"] * 4] * 2
    assert (changes.closed, changes.policy) == (("gpu01",), "fifo")


@pytest.mark.parametrize(
    "asked",
    [
        wire.CompareForecastsRequest(),
        wire.CompareForecastsRequest(policy="no-such"),
        wire.CompareForecastsRequest(policy="fifo", policy_settings={"place": "count"}),
        wire.CompareForecastsRequest(closed_node_ids=["gpu99"]),
        wire.CompareForecastsRequest(added_nodes=[wire.AddedNodes(node_count=0, gpu_count=8)]),
        wire.CompareForecastsRequest(added_nodes=[wire.AddedNodes(node_count=1, gpu_count=65)]),
        wire.CompareForecastsRequest(
            added_nodes=[wire.AddedNodes(node_count=1, gpu_count=8, gpu_type="abacus")]
        ),
    ],
)
async def test_what_cannot_be_is_refused(
    house: RpcHouse, asked: wire.CompareForecastsRequest
) -> None:
    operator = stub(house, "olga", Role.OPERATOR)
    call = operator.CompareForecasts(asked, timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.INVALID_ARGUMENT


async def test_without_a_twin_nothing_is_compared(house: RpcHouse) -> None:
    asked = wire.CompareForecastsRequest(policy="fifo")
    call = stub(house, "olga", Role.OPERATOR).CompareForecasts(asked, timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_comparing_is_for_operators(house: RpcHouse) -> None:
    call = stub(house).CompareForecasts(
        wire.CompareForecastsRequest(policy="fifo"), timeout=DEADLINE_S
    )
    assert await refusal(call) is grpc.StatusCode.PERMISSION_DENIED
