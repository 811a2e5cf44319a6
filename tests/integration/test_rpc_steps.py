"""Steps over the wire: from an agent's session to the table, and from there to their owner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from dlq.v1 import agent_service_pb2 as agents
from dlq.v1 import job_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq.v1.agent_service_pb2_grpc import AgentServiceStub
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.pki import Role
from dlq_common.text.wire import from_timestamp, to_duration
from dlq_master.model.attempts.attempt import AttemptState, TakenSteps
from dlq_master.model.ids import AttemptKey, JobId
from dlq_nodeagent.model.messages import TAKES_STEPS
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house

pytestmark = pytest.mark.integration


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


def stub_of(house: RpcHouse, name: str = "alice", role: Role = Role.USER) -> Any:
    return JobServiceStub(house.channel_as(name, role))


async def place_job(house: RpcHouse, name: str = "alice", *node_ids: str) -> JobId:
    request = wire.SubmitJobRequest(request_id=f"r{len(house.control.published.all_jobs)}")
    request.spec.command.append("/bin/true")
    request.spec.resources.gpu_count = 1
    answer = await stub_of(house, name).SubmitJob(request, timeout=DEADLINE_S)
    job_id = JobId(int(answer.job.job_id))
    house.control.place(job_id, *(node_ids or ("gpu01",)))
    return job_id


async def steps_of(
    house: RpcHouse, *job_ids: str, name: str = "alice", role: Role = Role.USER, **asked: Any
) -> wire.ListStepsResponse:
    request = wire.ListStepsRequest(job_ids=job_ids, **asked)
    answer: wire.ListStepsResponse = await stub_of(house, name, role).ListSteps(
        request, timeout=DEADLINE_S
    )
    return answer


def a_report(job_id: int = 1, *, epoch: int = 3, rank: int = 0, number: int = 1) -> Any:
    report = agents.StepsReport(job_id=str(job_id), node_rank=rank, number=number)
    report.fence.epoch, report.fence.attempt = epoch, 1
    step = report.steps.add(number=0, name="train", node_count=1, task_count=4, running=True)
    step.age_duration.CopyFrom(to_duration(30.0))
    step.node_ids.append("gpu01")
    return report


def a_told(number: int = 0, *, age: float = 1.0, ran: float | None = None, **more: Any) -> Any:
    """A step that began `age` seconds before it was told; `ran` None: it runs."""
    told = agents.ToldStep(number=number, running=ran is None, **more)
    told.age_duration.CopyFrom(to_duration(age))
    if ran is not None:
        told.run_duration.CopyFrom(to_duration(ran))
    return told


def keep(house: RpcHouse, number: int, *steps: Any, told_s: float = 1000.0) -> None:
    """A list that is on the disk, of the first attempt of a job."""
    key = AttemptKey(JobId(number), 1)
    report = agents.StepsReport(steps=steps)
    house.steps.lists[key] = TakenSteps(key, told_s, report.SerializeToString())


class Session:
    """An agent's, for reports of steps."""

    def __init__(self, house: RpcHouse, node_id: str = "gpu01") -> None:
        self.call: Any = AgentServiceStub(house.channel_as(node_id, Role.NODE)).Session()

    async def open(self) -> None:
        facts = agents.NodeFacts(hostname="h", boot_id="b", agent_version="1", cpu_count=4)
        await self.call.write(agents.SessionRequest(hello=agents.Hello(facts=facts)))
        assert TAKES_STEPS in (await self.hear()).welcome.features

    async def tell(self, report: agents.StepsReport) -> None:
        await self.call.write(agents.SessionRequest(steps_report=report))

    async def end(self) -> Any:
        """The code with which the master ends the session."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while await self.call.read() is not aio.EOF:
                    pass
                return await self.call.code()
        except aio.AioRpcError as error:
            return error.code()

    async def hear(self) -> agents.SessionResponse:
        message = await asyncio.wait_for(self.call.read(), DEADLINE_S)
        assert isinstance(message, agents.SessionResponse), "the session has ended"
        return message


async def test_a_list_is_acknowledged_when_it_is_on_disk_and_shown_to_its_owner(
    house: RpcHouse,
) -> None:
    await place_job(house)
    session = Session(house)
    await session.open()
    await session.tell(a_report(number=7))
    ack = (await session.hear()).steps_ack
    assert (ack.job_id, ack.fence.attempt, ack.node_rank, ack.number) == ("1", 1, 0, 7)
    [listed] = (await steps_of(house, "1")).attempts
    assert (listed.job_id, listed.attempt) == ("1", 1)
    [step] = listed.steps
    assert (step.name, step.state) == ("train", job_pb2.STEP_STATE_RUNNING)
    assert list(step.node_ids) == ["gpu01"]
    age_s = from_timestamp(listed.tell_time) - from_timestamp(step.start_time)
    assert age_s == pytest.approx(30.0, abs=0.001)


async def test_a_list_that_is_of_no_use_is_acknowledged_and_not_kept(house: RpcHouse) -> None:
    await place_job(house)
    session = Session(house)
    await session.open()
    unreadable = a_report()
    unreadable.steps.extend(a_told(number) for number in range(1, 1_001))
    for report in (unreadable, a_report(epoch=2), a_report(job_id=99)):
        await session.tell(report)
        assert (await session.hear()).steps_ack.job_id == report.job_id
    assert house.steps.lists == {}
    await session.call.write(agents.SessionRequest(heartbeat=agents.Heartbeat(sequence=5)))
    assert (await session.hear()).heartbeat_reply.sequence == 5, "the session goes on"


async def test_heartbeats_do_not_wait_for_lists(house: RpcHouse) -> None:
    await place_job(house)
    house.steps.room = False
    session = Session(house)
    await session.open()
    for number in range(100):
        await session.tell(a_report(number=number))
    await session.call.write(agents.SessionRequest(heartbeat=agents.Heartbeat(sequence=5)))
    assert (await session.hear()).heartbeat_reply.sequence == 5
    house.steps.room = True
    await session.tell(a_report(number=100))
    while (await session.hear()).steps_ack.number < 100:
        pass
    assert len(house.steps.lists) == 1


async def test_an_agent_tells_of_its_own_ranks_only(house: RpcHouse) -> None:
    await place_job(house)
    session = Session(house, "gpu02")
    await session.open()
    await session.tell(a_report())
    assert await session.end() == grpc.StatusCode.PERMISSION_DENIED
    assert house.steps.lists == {}


async def test_steps_are_for_their_owner_and_for_operators(house: RpcHouse) -> None:
    await place_job(house)
    keep(house, 1, a_told(name="secret"))
    bob = stub_of(house, "bob")
    asked = bob.ListSteps(wire.ListStepsRequest(job_ids=["1"]), timeout=DEADLINE_S)
    assert await refusal(asked) == grpc.StatusCode.NOT_FOUND
    assert not (await steps_of(house, name="bob")).attempts
    assert len((await steps_of(house)).attempts) == 1
    assert len((await steps_of(house, "1", name="olga", role=Role.OPERATOR)).attempts) == 1


async def test_what_still_ran_when_its_attempt_ended_was_cancelled_then(house: RpcHouse) -> None:
    await place_job(house)
    key = AttemptKey(JobId(1), 1)
    keep(house, 1, a_told(0, age=60.0, ran=20.0, exit_code=3), a_told(1, age=30.0))
    read = house.control.published
    read.all_attempts[key] = read.all_attempts[key]._replace(
        state=AttemptState.FAILED, ended_time_s=1010.0
    )
    [listed] = (await steps_of(house, "1")).attempts
    failed, cancelled = listed.steps
    assert (failed.state, failed.exit_code) == (job_pb2.STEP_STATE_FAILED, 3)
    assert (from_timestamp(failed.start_time), from_timestamp(failed.end_time)) == (940.0, 960.0)
    assert cancelled.state == job_pb2.STEP_STATE_CANCELLED
    assert from_timestamp(cancelled.end_time) == 1010.0
    assert not (await steps_of(house, "1", running_only=True)).attempts


async def test_the_script_is_measured_where_its_end_was_seen(house: RpcHouse) -> None:
    await place_job(house)
    keep(house, 1)
    [listed] = (await steps_of(house, "1")).attempts
    assert not listed.HasField("script_peak_memory_bytes")
    report = agents.StepsReport(script_peak_memory_bytes=4096)
    report.script_cpu_duration.CopyFrom(to_duration(1.5))
    key = AttemptKey(JobId(1), 1)
    house.steps.lists[key] = TakenSteps(key, 5.0, report.SerializeToString())
    [listed] = (await steps_of(house, "1")).attempts
    assert listed.script_peak_memory_bytes == 4096
    assert listed.script_cpu_duration == to_duration(1.5)


async def test_whatever_a_node_has_sent_every_field_fits(house: RpcHouse) -> None:
    await place_job(house)
    hostile = a_told(
        -3, name="\x1b[2Jé" + "x" * 999, exit_code=-9, node_count=-1, task_count=-1,
        peak_memory_bytes=-1, node_ids=["n\n"],
    )  # fmt: skip
    hostile.age_duration.seconds = 10**11
    hostile.cpu_duration.seconds = -5
    keep(house, 1, hostile, told_s=1e9)
    [step] = (await steps_of(house, "1")).attempts[0].steps
    assert step.name.startswith("?[2J?xxx")
    assert (len(step.name), step.number, step.exit_code) == (256, 0, 0)
    assert (step.node_count, step.task_count, step.peak_memory_bytes) == (0, 0, 0)
    assert [*step.node_ids] == ["n?"]
    assert (from_timestamp(step.start_time) > 0, step.cpu_duration.seconds) == (True, 0)


async def test_many_jobs_come_in_pages_each_attempt_whole(house: RpcHouse) -> None:
    for number in range(1, 61):
        await place_job(house)
        keep(house, number, *(a_told(at) for at in range(400)))
    token, seen, pages = "", [], 0
    while True:
        page = await steps_of(house, page_token=token)
        seen += [one.job_id for one in page.attempts]
        assert all(len(one.steps) == 400 for one in page.attempts)
        pages, token = pages + 1, page.next_page_token
        if not token:
            break
    assert seen == [str(number) for number in range(1, 61)]
    assert pages == 2


@pytest.mark.parametrize(
    "asked", [{"page_token": "x"}, {"job_ids": ["1"] * 1_001}, {"job_ids": ["../1"]}]
)
async def test_what_makes_no_sense_is_refused(house: RpcHouse, asked: dict[str, Any]) -> None:
    call = stub_of(house).ListSteps(wire.ListStepsRequest(**asked), timeout=DEADLINE_S)
    assert await refusal(call) == grpc.StatusCode.INVALID_ARGUMENT
