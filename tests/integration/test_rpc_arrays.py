"""Arrays over the wire: tasks by name, changes to many at once, and nobody else's."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.pki import Role
from dlq_master.control import stimuli as say
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.eligible import Array
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.resources import Request
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house

pytestmark = pytest.mark.integration

ARRAY = Array(JobId(12), 5, 0, 0, 40, 10)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        for ordinal in range(5):
            job = Job(
                job_id=JobId(13 + ordinal),
                user="alice",
                name="sweep",
                request=Request(gpus=1),
                submit_time_s=1.0,
                state=JobState.QUEUED,
                queued_since_s=1.0,
                array=ARRAY,
                array_index=10 * ordinal,
            )
            house.control.published.all_jobs[job.job_id] = job
        ended = house.control.published.all_jobs[JobId(13)]
        house.control.published.all_jobs[JobId(13)] = ended._replace(
            state=JobState.COMPLETED, end_time_s=2.0, queued_since_s=None
        )
        yield house


@pytest.fixture
def alice(house: RpcHouse) -> Any:
    return JobServiceStub(house.channel_as("alice", Role.USER))


@pytest.fixture
def bob(house: RpcHouse) -> Any:
    return JobServiceStub(house.channel_as("bob", Role.USER))


def ids(jobs: Any) -> list[str]:
    return [job.job_id for job in jobs]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["12"], ["13", "14", "15", "16", "17"]),
        (["12_30"], ["16"]),
        (["12_[0-20:10]", "14", "12_0"], ["13", "14", "15"]),
        (["12_5"], []),
        (["13_0"], []),
    ],
)
async def test_a_list_takes_the_names_of_tasks(
    alice: Any, names: list[str], found: list[str]
) -> None:
    answer = await alice.ListJobs(wire.ListJobsRequest(job_ids=names), timeout=DEADLINE_S)
    assert ids(answer.jobs) == found


async def test_a_task_is_known_by_both_names_and_the_array_is_no_job(alice: Any) -> None:
    by_name = await alice.GetJob(wire.GetJobRequest(job_id="12_20"), timeout=DEADLINE_S)
    assert by_name.job.job_id == "15"
    assert by_name.job.array_task.index == 20
    assert by_name.job.array_task.task_count == 5
    for name in ("12", "12_[0-10:10]"):
        code = await refusal(alice.GetJob(wire.GetJobRequest(job_id=name), timeout=DEADLINE_S))
        assert code is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("name", ["12", "12_20", "12_[0-40:10]", "99_1"])
async def test_another_users_array_is_as_good_as_none(bob: Any, name: str) -> None:
    listed = await bob.ListJobs(wire.ListJobsRequest(job_ids=[name]), timeout=DEADLINE_S)
    assert ids(listed.jobs) == []
    request = wire.CancelJobRequest(request_id="r", job_id=name)
    assert await refusal(bob.CancelJob(request, timeout=DEADLINE_S)) is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("name", ["12_[5-1]", "12_[]", "12_[0-4000001]", "12_x", "_1", "12_1,2"])
async def test_a_malformed_name_is_told_as_such(alice: Any, name: str) -> None:
    request = wire.HoldJobRequest(request_id="r", job_id=name)
    code = await refusal(alice.HoldJob(request, timeout=DEADLINE_S))
    assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_change_of_an_array_spares_what_has_ended_and_is_repeated_under_the_same_keys(
    house: RpcHouse, alice: Any
) -> None:
    request = wire.HoldJobRequest(request_id="r", job_id="12")
    await alice.HoldJob(request, timeout=DEADLINE_S)
    answer = await alice.HoldJob(request, timeout=DEADLINE_S)
    assert ids(answer.jobs) == ["13", "14", "15", "16", "17"]
    asked = [each for each in house.control.asked if isinstance(each, say.EditMany)]
    assert [each.request_id for each in asked] == 2 * ["r#0"]
    assert all(each.living_only for each in asked)
    assert house.control.published.all_jobs[JobId(13)].state is JobState.COMPLETED
    assert len(answer.refusals) == 0


async def test_a_version_is_that_of_one_job(alice: Any) -> None:
    request = wire.HoldJobRequest(request_id="r", job_id="12", expected_version=3)
    code = await refusal(alice.HoldJob(request, timeout=DEADLINE_S))
    assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_list_of_too_many_names_is_refused(house: RpcHouse, alice: Any) -> None:
    big = replace_array(house, 9_000)
    names = [f"12_[0-{last}]" for last in range(8_970, 8_999)]
    code = await refusal(alice.ListJobs(wire.ListJobsRequest(job_ids=names), timeout=DEADLINE_S))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert big == 9_000


def replace_array(house: RpcHouse, count: int) -> int:
    """A larger one in its place."""
    jobs = house.control.published.all_jobs
    first = jobs[JobId(14)]
    array = ARRAY._replace(tasks=count, last=count - 1, step=1)
    for ordinal in range(count):
        number = JobId(13 + ordinal)
        jobs[number] = first._replace(job_id=number, array=array, array_index=ordinal)
    return len(jobs)


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        ({"nice": 101}, "spec.nice"),
        ({"name": "a\nb"}, "spec.name"),
        ({"concurrent_count": -1}, "concurrent_count"),
    ],
)
async def test_an_update_that_cannot_be_meant_names_its_field(
    alice: Any, wish: dict[str, Any], field: str
) -> None:
    request = wire.UpdateJobRequest(request_id="r", job_id="14", **wish)
    with pytest.raises(aio.AioRpcError) as caught:
        await alice.UpdateJob(request, timeout=DEADLINE_S)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert field.removeprefix("spec.") in str(caught.value.details())


@pytest.mark.parametrize("signal", ["", "KILL", "SIGSTOP", "9", "USR9", "USR1\n"])
async def test_signals_that_are_not_for_users_are_refused(alice: Any, signal: str) -> None:
    request = wire.SignalJobRequest(request_id="r", job_id="14", signal=signal)
    code = await refusal(alice.SignalJob(request, timeout=DEADLINE_S))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
