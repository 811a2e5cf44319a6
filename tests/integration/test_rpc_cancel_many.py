"""Many ends in one call: each job by itself, few turns, and a repeat is told the same."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlq.v1 import job_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_client.jobs import Jobs
from dlq_common.identity.pki import Role
from dlq_common.text.arrays import IndexRange, expand
from dlq_master.control import stimuli as say
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.resources import Request
from dlq_master.rpc.jobs import visible
from dlq_master.rpc.jobs.edits import IN_ONE_TURN
from support.harness import Daemons
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house

pytestmark = pytest.mark.integration
JOBS = 1_000
ARRAY = job_pb2.ArraySpec(ranges=[job_pb2.ArrayRange(first=0, last=499)])


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        for number in range(1, JOBS + 1):
            user = "bob" if number == 7 else "alice"
            job = Job(JobId(number), user, "one", Request(gpus=1), 1.0, state=JobState.QUEUED)
            house.control.published.all_jobs[job.job_id] = job
        yield house


@pytest.fixture
def alice(house: RpcHouse) -> Any:
    return JobServiceStub(house.channel_as("alice", Role.USER))


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    with Daemons(tmp_path_factory.mktemp("ends"), ("n1",)).up() as running:
        yield running


def names(*more: str) -> list[str]:
    return [str(number) for number in range(1, JOBS + 1) if number != 7] + list(more)


async def test_they_share_turns_and_the_turns_are_bounded(house: RpcHouse, alice: Any) -> None:
    request = wire.CancelJobsRequest(request_id="r", job_ids=names())
    answer = await alice.CancelJobs(request, timeout=DEADLINE_S)
    assert (len(answer.jobs), len(answer.refusals)) == (0, 0)
    asked = house.control.asked
    assert all(isinstance(one, say.EditMany) for one in asked)
    assert max(len(one.edits) for one in asked) == IN_ONE_TURN
    assert len(asked) == -(-(JOBS - 1) // IN_ONE_TURN)
    states = {job.state for number, job in house.control.published.all_jobs.items() if number != 7}
    assert states == {JobState.CANCELLED}


async def test_a_name_that_means_nothing_and_anothers_job_are_refused_alike(
    house: RpcHouse, alice: Any
) -> None:
    request = wire.CancelJobsRequest(
        request_id="r", job_ids=["1", "7", "x", "5000"], with_jobs=True
    )
    answer = await alice.CancelJobs(request, timeout=DEADLINE_S)
    assert [job.job_id for job in answer.jobs] == ["1"]
    assert [(one.job_id, one.reason) for one in answer.refusals] == [
        ("7", "NOT_FOUND"),
        ("x", "INVALID_REQUEST"),
        ("5000", "NOT_FOUND"),
    ]
    assert house.control.published.all_jobs[JobId(7)].state is JobState.QUEUED
    house.audit.close()
    lines = [json.loads(line) for line in house.audit_path.read_text().splitlines()]
    mine = [line for line in lines if line["method"].endswith("/CancelJobs")]
    assert [(line["decision"], line["object"]) for line in mine] == [
        ("HIDDEN", "7"),
        ("OK", "1,7,x,5000"),
    ]


def count_expanded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of indexes that names were expanded to, as they come."""
    sizes: list[int] = []

    def counted(ranges: Iterable[IndexRange]) -> tuple[int, ...]:
        sizes.append(len(indexes := expand(ranges)))
        return indexes

    monkeypatch.setattr(visible, "expand", counted)
    return sizes


async def test_names_of_tasks_that_are_not_there_cost_no_more_than_other_names(
    house: RpcHouse, alice: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a dozen letters that name 100,000 tasks: 150 of them held the loop for 8 s."""
    sizes = count_expanded(monkeypatch)
    many = [f"{number}_[0-99999]" for number in range(5_000, 5_300)]
    answer = await alice.CancelJobs(
        wire.CancelJobsRequest(request_id="r", job_ids=many), timeout=DEADLINE_S
    )
    assert {one.reason for one in answer.refusals} == {"NOT_FOUND"}
    assert len(answer.refusals) == len(many)
    listed = await alice.ListJobs(wire.ListJobsRequest(job_ids=many), timeout=DEADLINE_S)
    assert (len(listed.jobs), sizes) == (0, [])


async def test_a_name_of_many_ranges_is_refused_before_it_is_read(
    house: RpcHouse, alice: Any
) -> None:
    """One of 4 MiB held the loop for seconds."""
    word = f"1_[{'0,' * 10_000}0]"
    request = wire.CancelJobsRequest(request_id="r", job_ids=[word])
    answer = await alice.CancelJobs(request, timeout=DEADLINE_S)
    assert [one.reason for one in answer.refusals] == ["INVALID_REQUEST"]
    assert "name fewer jobs at once" in answer.refusals[0].detail
    some = [f"{number}_[{'0,' * 1_000}0]" for number in range(5_000, 5_100)]
    code = await refusal(alice.ListJobs(wire.ListJobsRequest(job_ids=some), timeout=DEADLINE_S))
    assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_words_that_are_said_again_and_again_are_refused_before_they_are_read(
    alice: Any,
) -> None:
    asked = wire.ListJobsRequest(states=["held"] * 257)
    code = await refusal(alice.ListJobs(asked, timeout=DEADLINE_S))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    watched = alice.WatchEvents(wire.WatchEventsRequest(job_ids=["1"] * 100_001))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await watched.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("count", [0, 10_001])
async def test_no_name_and_too_many_are_refused(house: RpcHouse, alice: Any, count: int) -> None:
    request = wire.CancelJobsRequest(request_id="r", job_ids=["1"] * count)
    code = await refusal(alice.CancelJobs(request, timeout=DEADLINE_S))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    request = wire.CancelJobsRequest(job_ids=["1"])
    code = await refusal(alice.CancelJobs(request, timeout=DEADLINE_S))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert house.control.asked == []


def a_spec(**more: Any) -> job_pb2.JobSpec:
    spec = job_pb2.JobSpec(name="one", command=["/bin/true"], hold=True, **more)
    spec.resources.gpu_count = 1
    return spec


def test_a_repeat_after_a_restart_cancels_nothing_else(daemons: Daemons) -> None:
    with daemons.connect() as line:
        ids = [job.job_id for job in Jobs(line).submit_many([a_spec()] * 300)]
        request = wire.CancelJobsRequest(request_id="k", job_ids=[*ids, "999999"], with_jobs=True)
        first = JobServiceStub(line.channel).CancelJobs(request, timeout=DEADLINE_S)
    daemons.kill("master")
    daemons.start("master")
    daemons.wait_for("master")
    with daemons.connect() as line:
        again = Jobs(line)._connection.call(JobServiceStub(line.channel).CancelJobs, request)
        held = Jobs(line).list(job_ids=ids).jobs
    assert [job.state for job in held] == [job_pb2.JOB_STATE_CANCELLED] * 300
    assert [job.version for job in again.jobs] == [job.version for job in first.jobs]
    assert [one.job_id for one in again.refusals] == ["999999"]


def test_an_array_is_held_released_and_cancelled_in_parts(daemons: Daemons) -> None:
    with daemons.connect() as line:
        jobs = Jobs(line)
        lasting = a_spec(array=ARRAY)
        lasting.command[:] = ["/bin/sleep", "60"]  # a released task may start before the cancel
        array = jobs.submit(lasting).job.array_task.array_id
        assert len(jobs.hold_each(array).jobs) == 500
        released = jobs.release_each(f"{array}_[100-499]", only_first=True)
        assert [job.array_task.index for job in released.jobs] == [100]
        held = [job.state == job_pb2.JOB_STATE_HELD for job in jobs.list(job_ids=[array]).jobs]
        assert held == [True] * 100 + [False] * 400
        edited = jobs.cancel_many([array, "999999"], with_jobs=True)
    assert {job.state for job in edited.jobs} == {job_pb2.JOB_STATE_CANCELLED}
    assert len(edited.jobs) == 500
    assert [one.reason for one in edited.refusals] == ["NOT_FOUND"]
