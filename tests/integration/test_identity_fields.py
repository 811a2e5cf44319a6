"""Identity comes from the certificate: no field of any request makes anybody somebody else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.pki import Role
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house

pytestmark = pytest.mark.integration

# Each job RPC with a request that would work for the job's owner.
JOB_CALLS: dict[str, Callable[[str], Any]] = {
    "GetJob": lambda job: wire.GetJobRequest(job_id=job),
    "CancelJob": lambda job: wire.CancelJobRequest(job_id=job, request_id="x1"),
    "HoldJob": lambda job: wire.HoldJobRequest(job_id=job, request_id="x2"),
    "ReleaseJob": lambda job: wire.ReleaseJobRequest(job_id=job, request_id="x3"),
    "PauseJob": lambda job: wire.PauseJobRequest(job_id=job, request_id="x4"),
    "ResumeJob": lambda job: wire.ResumeJobRequest(job_id=job, request_id="x5"),
    "UpdateJob": lambda job: wire.UpdateJobRequest(job_id=job, request_id="x6", name="mine"),
    "RequeueJob": lambda job: wire.RequeueJobRequest(job_id=job, request_id="x7"),
    "SignalJob": lambda job: wire.SignalJobRequest(job_id=job, request_id="x8", signal="USR1"),
    "CheckpointJob": lambda job: wire.CheckpointJobRequest(job_id=job, request_id="x9"),
    "ExplainJob": lambda job: wire.ExplainJobRequest(job_id=job),
    "ListEvents": lambda job: wire.ListEventsRequest(job_id=job),
    "WatchEvents": lambda job: wire.WatchEventsRequest(job_ids=[job]),
    "ReadLogs": lambda job: wire.ReadLogsRequest(job_id=job),
}


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


async def submit(house: RpcHouse, name: str = "alice") -> str:
    stub = JobServiceStub(house.channel_as(name, Role.USER))
    request = wire.SubmitJobRequest(request_id=f"of-{name}")
    request.spec.command.append("/bin/true")
    request.spec.resources.gpu_count = 1
    answer = await stub.SubmitJob(request, timeout=DEADLINE_S)
    assert answer.job.user == name
    return str(answer.job.job_id)


def test_every_rpc_that_names_a_job_is_in_this_file() -> None:
    methods = wire.DESCRIPTOR.services_by_name["JobService"].methods
    naming = {
        method.name
        for method in methods
        if {"job_id", "job_ids"} & set(method.input_type.fields_by_name)
    }
    assert naming == JOB_CALLS.keys() | {"ListJobs"}


@pytest.mark.parametrize("method", JOB_CALLS)
async def test_another_users_job_does_not_exist(house: RpcHouse, method: str) -> None:
    job_id = await submit(house)
    bob = JobServiceStub(house.channel_as("bob", Role.USER))
    with pytest.raises(aio.AioRpcError) as theirs:
        await _end(getattr(bob, method)(JOB_CALLS[method](job_id), timeout=DEADLINE_S))
    with pytest.raises(aio.AioRpcError) as nobodys:
        await _end(getattr(bob, method)(JOB_CALLS[method]("999"), timeout=DEADLINE_S))
    assert theirs.value.code() is grpc.StatusCode.NOT_FOUND
    assert theirs.value.details() == f"there is no job {job_id!r}"
    assert nobodys.value.details() == "there is no job '999'"


async def test_an_operator_reaches_everybodys_jobs(house: RpcHouse) -> None:
    job_id = await submit(house)
    olga = JobServiceStub(house.channel_as("olga", Role.OPERATOR))
    answer = await olga.GetJob(wire.GetJobRequest(job_id=job_id), timeout=DEADLINE_S)
    assert answer.job.user == "alice"


async def test_a_list_holds_only_the_callers_jobs_whatever_it_asks_for(house: RpcHouse) -> None:
    await submit(house, "alice")
    await submit(house, "bob")
    bob = JobServiceStub(house.channel_as("bob", Role.USER))
    for request in (wire.ListJobsRequest(), wire.ListJobsRequest(job_ids=["1", "2"])):
        answer = await bob.ListJobs(request, timeout=DEADLINE_S)
        assert [job.user for job in answer.jobs] == ["bob"]


@pytest.mark.parametrize("user", ["*", "alice", "nobody"])
async def test_a_user_cannot_list_as_somebody_else(house: RpcHouse, user: str) -> None:
    bob = JobServiceStub(house.channel_as("bob", Role.USER))
    call = bob.ListJobs(wire.ListJobsRequest(user=user), timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.PERMISSION_DENIED


async def test_events_of_others_and_of_the_cluster_are_not_told(house: RpcHouse) -> None:
    await submit(house, "alice")
    await submit(house, "bob")
    house.control.note("node_lost", node_id="gpu01")
    bob = JobServiceStub(house.channel_as("bob", Role.USER))
    events = await bob.ListEvents(wire.ListEventsRequest(), timeout=DEADLINE_S)
    assert [event.actor for event in events.events] == ["user:bob"]
    olga = JobServiceStub(house.channel_as("olga", Role.OPERATOR))
    events = await olga.ListEvents(wire.ListEventsRequest(), timeout=DEADLINE_S)
    assert len(events.events) == 3


async def test_metadata_that_claims_another_user_is_ignored(house: RpcHouse) -> None:
    job_id = await submit(house)
    bob = JobServiceStub(house.channel_as("bob", Role.USER))
    claims = (("user", "root"), ("x-forwarded-user", "root"), ("authorization", "Bearer root"))
    call = bob.GetJob(wire.GetJobRequest(job_id=job_id), metadata=claims, timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.NOT_FOUND


async def test_a_user_cannot_hold_as_an_operator(house: RpcHouse) -> None:
    job_id = await submit(house)
    alice = JobServiceStub(house.channel_as("alice", Role.USER))
    request = wire.HoldJobRequest(job_id=job_id, request_id="h", admin=True)
    call = alice.HoldJob(request, timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.PERMISSION_DENIED


async def test_prying_is_in_the_audit_as_hidden(house: RpcHouse) -> None:
    job_id = await submit(house)
    bob = JobServiceStub(house.channel_as("bob", Role.USER))
    await refusal(bob.GetJob(wire.GetJobRequest(job_id=job_id), timeout=DEADLINE_S))
    house.audit.close()
    assert '"who":"bob"' in house.audit_path.read_text()
    assert '"decision":"HIDDEN"' in house.audit_path.read_text()


async def _end(call: Any) -> None:
    """Wait for the end of a call, streaming or not; raises its error."""
    if hasattr(call, "__aiter__"):
        async for _ in call:
            pass
    else:
        await call
