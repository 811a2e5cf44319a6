"""Identity comes from the certificate: no field of any request makes anybody somebody else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from dlq.v1 import job_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.pki import Role
from dlq_master.control.stimuli import Caller
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Checkpoint, Taken
from dlq_master.rpc.jobs.wait_view import with_owners
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
    "AttendJob": lambda job: wire.AttendJobRequest(job_id=job),
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
    # Lists have tests of their own: below, in test_rpc_steps.py and test_rpc_cancel_many.py.
    assert naming == JOB_CALLS.keys() | {"ListJobs", "ListSteps", "CancelJobs"}


@pytest.mark.parametrize("method", JOB_CALLS)
async def test_another_users_job_does_not_exist(house: RpcHouse, method: str) -> None:
    job_id = await submit(house)
    bob = JobServiceStub(house.channel_as("bob", Role.USER))
    with pytest.raises(aio.AioRpcError) as theirs:
        await _end(getattr(bob, method)(JOB_CALLS[method](job_id), timeout=DEADLINE_S))
    with pytest.raises(aio.AioRpcError) as nobodys:
        await _end(getattr(bob, method)(JOB_CALLS[method]("999"), timeout=DEADLINE_S))
    assert theirs.value.code() is grpc.StatusCode.NOT_FOUND
    assert theirs.value.details() == f"there is no job {job_id}"
    assert nobodys.value.details() == "there is no job 999"


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


# All that an ordinary user learns of somebody else's job: every other field of the message stays
# unset.
SHOWN_OF_OTHERS = {
    "redacted", "job_id", "array_task", "user", "state", "attempt_state", "profiling", "submit_time",  # noqa: E501
    "start_time", "run_duration", "held_gpu_count", "resources", "queue", "node_ids",
    "time_limit_duration", "time_limit_scope", "time_left_duration",
}  # fmt: skip


async def test_of_others_jobs_a_list_of_everybody_shows_that_they_are_there_and_nothing_else(
    house: RpcHouse,
) -> None:
    job_id = await submit_with_everything(house)
    own = await submit(house, "bob")
    bob = JobServiceStub(house.channel_as("bob", Role.USER))
    for user in ("*", "alice"):
        answer = await bob.ListJobs(wire.ListJobsRequest(user=user), timeout=DEADLINE_S)
        theirs = next(job for job in answer.jobs if job.job_id == job_id)
        told = {field.name for field, _ in theirs.ListFields()}
        assert told <= SHOWN_OF_OTHERS
        assert {"job_id", "user", "state", "attempt_state", "submit_time", "held_gpu_count"} <= told
        assert {"queue", "node_ids"} <= told
        assert theirs.user == "alice"
        asked = {field.name for field, _ in theirs.resources.ListFields()}
        assert {"gpu_count"} <= asked <= {"gpu_count", "core_count", "node_count", "gpu_type"}
        assert b"secret" not in theirs.SerializeToString()
        ids = {job.job_id for job in answer.jobs}
        assert ids == ({job_id, own} if user == "*" else {job_id})
    whole = next(job for job in (await everybody(bob)).jobs if job.job_id == own)
    assert (whole.name, whole.redacted) == ("true", False)


async def test_filters_tell_nothing_of_others_jobs(house: RpcHouse) -> None:
    await submit_with_everything(house)
    bob = JobServiceStub(house.channel_as("bob", Role.USER))
    chosen = wire.ListJobsRequest(user="*", name="secret-name")
    assert not (await bob.ListJobs(chosen, timeout=DEADLINE_S)).jobs
    in_queue = wire.ListJobsRequest(user="*", queue="default")
    (job,) = (await bob.ListJobs(in_queue, timeout=DEADLINE_S)).jobs
    assert (job.redacted, job.queue) == (True, "default")
    named = wire.ListJobsRequest(user="*", job_ids=["1"])
    past = wire.ListJobsRequest(user="*")
    past.ended_from_time.GetCurrentTime()
    for request in (named, past):
        call = bob.ListJobs(request, timeout=DEADLINE_S)
        assert await refusal(call) is grpc.StatusCode.PERMISSION_DENIED


async def test_what_has_ended_of_others_is_not_shown(house: RpcHouse) -> None:
    job_id = await submit(house)
    alice = JobServiceStub(house.channel_as("alice", Role.USER))
    cancel = wire.CancelJobRequest(job_id=job_id, request_id="c", kill=True)
    await alice.CancelJob(cancel, timeout=DEADLINE_S)
    bob = JobServiceStub(house.channel_as("bob", Role.USER))
    assert not (await everybody(bob)).jobs


async def test_a_cluster_may_hide_the_names_of_others_or_their_jobs(house: RpcHouse) -> None:
    await submit_with_everything(house)
    bob = JobServiceStub(house.channel_as("bob", Role.USER))
    house.control.published.others_shown = "nameless"
    (job,) = (await everybody(bob)).jobs
    assert (job.user, job.redacted) == ("", True)
    assert b"alice" not in job.SerializeToString()
    by_name = bob.ListJobs(wire.ListJobsRequest(user="alice"), timeout=DEADLINE_S)
    assert await refusal(by_name) is grpc.StatusCode.PERMISSION_DENIED
    house.control.published.others_shown = "hidden"
    for user in ("*", "alice", "nobody"):
        call = bob.ListJobs(wire.ListJobsRequest(user=user), timeout=DEADLINE_S)
        assert await refusal(call) is grpc.StatusCode.PERMISSION_DENIED
    olga = JobServiceStub(house.channel_as("olga", Role.OPERATOR))
    (job,) = (await everybody(olga)).jobs
    assert (job.user, job.name, job.redacted) == ("alice", "secret-name", False)


async def test_why_names_the_owners_of_jobs_in_the_way_where_names_are_shown(
    house: RpcHouse,
) -> None:
    read = house.control.published
    held = await submit_with_everything(house)
    bob = Caller("bob", "user")

    def owners() -> list[str]:
        message = job_pb2.WaitReason(code="resources", blocking_job_ids=[held])
        (told,) = with_owners([message], read, bob)
        return list(told.blocking_users)

    assert owners() == ["alice"]
    for word in ("nameless", "hidden"):
        read.others_shown = word
        assert owners() == []


async def test_for_whom_a_job_left_is_not_named_where_names_are_hidden(house: RpcHouse) -> None:
    job_id = await submit(house, "bob")
    read = house.control.published
    taken = Taken(JobId(7), "alice", "the least work first", 1.0)
    read.all_jobs[JobId(int(job_id))] = read.all_jobs[JobId(int(job_id))]._replace(taken=taken)
    data = {"for_job": 7, "user": "alice"}
    house.control.note("job_displaced", job_id=JobId(int(job_id)), data=data)
    bob = JobServiceStub(house.channel_as("bob", Role.USER))
    for word, named in (("named", True), ("nameless", False)):
        read.others_shown = word
        job = await bob.GetJob(wire.GetJobRequest(job_id=job_id), timeout=DEADLINE_S)
        events = await bob.ListEvents(wire.ListEventsRequest(job_id=job_id), timeout=DEADLINE_S)
        assert (b"alice" in job.SerializeToString()) is named
        assert (b"alice" in events.SerializeToString()) is named
        assert job.job.last_preemption.for_job_id == "7"


async def everybody(stub: Any) -> wire.ListJobsResponse:
    answer: wire.ListJobsResponse = await stub.ListJobs(
        wire.ListJobsRequest(user="*"), timeout=DEADLINE_S
    )
    return answer


async def submit_with_everything(house: RpcHouse) -> str:
    """A job of alice's that runs, about which there is much to hide."""
    stub = JobServiceStub(house.channel_as("alice", Role.USER))
    request = wire.SubmitJobRequest(request_id="all-of-alice")
    spec = request.spec
    spec.name, spec.working_directory = "secret-name", "/home/secret"
    spec.command.extend(["/bin/true", "secret"])
    spec.environment["KEY"] = spec.labels["label"] = "secret"
    spec.resources.gpu_count = 2
    spec.resources.constraint["rack"] = "secret"
    spec.checkpoint.directory = "/ckpt/secret"
    spec.time_limit_duration.FromSeconds(60)
    answer = await stub.SubmitJob(request, timeout=DEADLINE_S)
    job_id = JobId(int(answer.job.job_id))
    house.control.place(job_id, "gpu-17")
    read = house.control.published
    read.all_jobs[job_id] = read.all_jobs[job_id]._replace(
        hold_reason="secret", team="secret", checkpoint=Checkpoint("/ckpt/secret/1", 1, 1.0, 1)
    )
    return str(job_id)


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
