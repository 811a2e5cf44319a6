"""The agents' session over the wire: welcome, heartbeats, acks after the commit, and its limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1 import job_service_pb2 as jobs
from dlq.v1.agent_service_pb2_grpc import AgentServiceStub
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.errors import Unavailable
from dlq_common.identity.pki import Role
from dlq_master.control import stimuli as say
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from support.rpc_house import DEADLINE_S, RpcHouse, rpc_house, until
from support.told_traffic import a_message

pytestmark = pytest.mark.integration

GPU01 = NodeId("gpu01")


class Agent:
    """The other end of a session, said and heard message by message."""

    def __init__(self, house: RpcHouse, node_id: str = "gpu01") -> None:
        self.stub = AgentServiceStub(house.channel_as(node_id, Role.NODE))
        self.call: Any = self.stub.Session()

    async def say(self, **body: Any) -> None:
        await self.call.write(wire.SessionRequest(**body))

    async def hear(self) -> wire.SessionResponse:
        message = await asyncio.wait_for(self.call.read(), DEADLINE_S)
        assert isinstance(message, wire.SessionResponse), "the session has ended"
        return message

    async def hello(self, *ranks: wire.RankReport) -> wire.Welcome:
        facts = wire.NodeFacts(hostname="h", boot_id="boot-1", agent_version="1", cpu_count=4)
        facts.gpus.add(index=0, gpu_type="h100-80gb", uuid="GPU-0", memory_bytes=80)
        await self.say(hello=wire.Hello(facts=facts, ranks=ranks))
        return (await self.hear()).welcome

    async def end(self) -> grpc.StatusCode:
        """How the session ends, whatever else is said on it until then."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                while await self.call.read() is not aio.EOF:
                    pass
                code = await self.call.code()
        except aio.AioRpcError as error:
            code = error.code()
        assert isinstance(code, grpc.StatusCode)
        return code


def a_report(sequence: int, job_id: int = 1, rank: int = 0) -> wire.RankReport:
    report = wire.RankReport(
        sequence=sequence, job_id=str(job_id), node_rank=rank, phase=wire.RANK_PHASE_STARTED
    )
    report.fence.epoch, report.fence.attempt = 3, 1
    return report


def a_stop(sequence: int) -> say.Stop:
    return say.Stop(
        sequence=sequence,
        key=AttemptKey(JobId(1), 1),
        epoch=3,
        node_id=GPU01,
        node_rank=0,
        cause="preempt",
        grace_s=60.0,
    )


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


async def place_job(house: RpcHouse, *node_ids: str) -> None:
    stub = JobServiceStub(house.channel_as("alice", Role.USER))
    request = jobs.SubmitJobRequest(request_id="r")
    request.spec.command.append("/bin/true")
    request.spec.resources.gpu_count = 1
    await stub.SubmitJob(request, timeout=DEADLINE_S)
    house.control.place(JobId(1), *node_ids)


async def test_a_hello_is_put_to_the_loop_and_welcomed(house: RpcHouse) -> None:
    agent = Agent(house)
    welcome = await agent.hello()
    assert (welcome.epoch, welcome.heartbeat_duration.seconds) == (3, 5)
    stimulus = house.control.asked[0]
    assert isinstance(stimulus, say.OpenSession)
    assert stimulus.node_id == "gpu01"
    assert stimulus.facts.gpus[0].gpu_type == "h100-80gb"


async def test_a_heartbeat_is_answered_without_the_loop(house: RpcHouse) -> None:
    agent = Agent(house)
    await agent.hello()
    house.control.failure = RuntimeError("the loop is stuck")
    await agent.say(heartbeat=wire.Heartbeat(sequence=41))
    assert (await agent.hear()).heartbeat_reply.sequence == 41
    assert house.control.told[-1] == say.Heartbeat(node_id=GPU01, session_id=1)


async def test_a_report_is_acknowledged_after_the_loop_has_it(house: RpcHouse) -> None:
    await place_job(house, "gpu01")
    agent = Agent(house)
    await agent.hello()
    await agent.say(report=a_report(7))
    assert (await agent.hear()).report_ack.sequence == 7
    stimulus = house.control.asked[-1]
    assert isinstance(stimulus, say.RankReports)
    assert [each.sequence for each in stimulus.reports] == [7]


async def test_a_master_that_is_silent_for_a_moment_goes_on_to_hear_its_agents(
    house: RpcHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that stands still for some seconds must not end the sessions of all agents."""

    def silent() -> Any:
        raise Unavailable("another master may lead")

    await place_job(house, "gpu01")
    agent = Agent(house)
    await agent.hello()
    monkeypatch.setattr(house.control, "current", silent)
    await agent.say(heartbeat=wire.Heartbeat(sequence=41))
    assert (await agent.hear()).heartbeat_reply.sequence == 41
    await agent.say(report=a_report(7))
    assert (await agent.hear()).report_ack.sequence == 7


async def test_reports_of_the_hello_are_acknowledged(house: RpcHouse) -> None:
    await place_job(house, "gpu01")
    agent = Agent(house)
    await agent.hello(a_report(12))
    assert (await agent.hear()).report_ack.sequence == 12


async def test_many_reports_are_acknowledged_in_order_and_all(house: RpcHouse) -> None:
    await place_job(house, "gpu01")
    agent = Agent(house)
    await agent.hello()
    for sequence in range(1, 301):
        await agent.say(report=a_report(sequence))
    acknowledged = 0
    while acknowledged < 300:
        sequence = (await agent.hear()).report_ack.sequence
        assert sequence > acknowledged
        acknowledged = sequence


async def test_reports_that_come_one_after_another_are_acknowledged_together(
    house: RpcHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, later = asyncio.get_running_loop(), []
    call_later = loop.call_later

    def note(delay: float, call: Any, *args: Any, **more: Any) -> asyncio.TimerHandle:
        if delay == house.sessions.ack_pause_s:
            later.append(call)
            delay = 1e6
        return call_later(delay, call, *args, **more)

    house.sessions.ack_pause_s = 1234.5
    monkeypatch.setattr(loop, "call_later", note)
    await place_job(house, "gpu01")
    agent = Agent(house)
    await agent.hello()
    for sequence in (7, 8, 9):
        await agent.say(report=a_report(sequence))
        await until(partial(_has_reported, house, sequence), house.control.arrived)
    assert len(later) == 1, "one message for all three"
    later.pop()()
    assert (await agent.hear()).report_ack.sequence == 9
    await agent.say(report=a_report(10))
    await until(lambda: len(later) == 1, house.control.arrived)
    later.pop()()
    assert (await agent.hear()).report_ack.sequence == 10


def _has_reported(house: RpcHouse, sequence: int) -> bool:
    """Whether the loop was asked to take this report."""
    asked = [it for it in house.control.asked if isinstance(it, say.RankReports)]
    return bool(asked) and asked[-1].reports[-1].sequence == sequence


async def test_evidence_is_acknowledged_after_the_loop_has_it_and_dropped_if_nobody_can_read_it(
    house: RpcHouse,
) -> None:
    agent = Agent(house)
    await agent.hello()
    await agent.say(profile_evidence=a_message())
    ack = (await agent.hear()).profile_ack
    assert (ack.job_id, ack.fence.epoch, ack.fence.attempt, ack.node_rank) == ("17", 3, 2, 0)
    (said,) = [asked for asked in house.control.asked if isinstance(asked, say.TakeEvidence)]
    assert said.evidence.node_id == GPU01

    newer = a_message(pattern="a pattern of a newer agent", node_rank=1)
    await agent.say(profile_evidence=newer)
    assert (await agent.hear()).profile_ack.node_rank == 1
    assert house.control.asked[-1] is said
    await agent.say(heartbeat=wire.Heartbeat(sequence=1))
    assert (await agent.hear()).heartbeat_reply.sequence == 1, "the session goes on"


async def test_commands_reach_the_agent_and_its_answers_the_loop(house: RpcHouse) -> None:
    agent = Agent(house)
    await agent.hello()
    house.sessions.send(GPU01, 1, [a_stop(5)])
    command = (await agent.hear()).command
    assert (command.sequence, command.epoch, command.stop.cause) == (5, 3, "preempt")
    await agent.say(command_result=wire.CommandResult(sequence=5, refusal="unknown_rank"))
    done = say.CommandDone(node_id=GPU01, session_id=1, sequence=5, refusal="unknown_rank")
    await until(lambda: done in house.control.told, house.control.arrived)


async def test_a_new_session_ends_the_old_one(house: RpcHouse) -> None:
    old, new = Agent(house), Agent(house)
    await old.hello()
    await new.hello()
    assert await old.end() is grpc.StatusCode.UNAVAILABLE
    await new.say(heartbeat=wire.Heartbeat(sequence=1))
    assert (await new.hear()).heartbeat_reply.sequence == 1


async def test_the_end_of_a_stream_is_told_to_the_loop(house: RpcHouse) -> None:
    agent = Agent(house)
    await agent.hello()
    agent.call.cancel()
    closed = say.CloseSession(node_id=GPU01, session_id=1)
    await until(lambda: closed in house.control.told, house.control.arrived)
    assert house.sessions.line(GPU01) is None


async def test_an_agent_that_hangs_up_is_let_go(house: RpcHouse) -> None:
    agent = Agent(house)
    await agent.hello()
    await agent.call.done_writing()
    assert await agent.end() is grpc.StatusCode.UNAVAILABLE


async def test_the_loop_can_end_a_session(house: RpcHouse) -> None:
    agent = Agent(house)
    await agent.hello()
    house.sessions.close(GPU01, 1)
    assert await agent.end() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    "first",
    [
        {},
        {"heartbeat": wire.Heartbeat(sequence=1)},
        {"hello": wire.Hello()},
        {"hello": wire.Hello(facts=wire.NodeFacts(boot_id="b"), ranks=[wire.RankReport()])},
    ],
)
async def test_a_session_opens_with_a_hello_that_makes_sense(
    house: RpcHouse, first: dict[str, Any]
) -> None:
    agent = Agent(house)
    await agent.say(**first)
    assert await agent.end() is grpc.StatusCode.INVALID_ARGUMENT
    assert house.control.asked == []


async def test_a_second_hello_ends_the_session(house: RpcHouse) -> None:
    agent = Agent(house)
    await agent.hello()
    await agent.say(hello=wire.Hello())
    assert await agent.end() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("rank", [0, 1, 7])
async def test_an_agent_cannot_report_what_is_placed_elsewhere(house: RpcHouse, rank: int) -> None:
    await place_job(house, "gpu02")
    agent = Agent(house)
    await agent.hello()
    await agent.say(report=a_report(1, rank=rank))
    assert await agent.end() is grpc.StatusCode.PERMISSION_DENIED
    assert not any(isinstance(each, say.RankReports) for each in house.control.asked)


async def test_an_agent_cannot_report_another_ranks_end(house: RpcHouse) -> None:
    await place_job(house, "gpu01", "gpu02")
    agent = Agent(house)
    await agent.hello()
    await agent.say(report=a_report(1, rank=1))
    assert await agent.end() is grpc.StatusCode.PERMISSION_DENIED


async def test_an_agent_cannot_tell_of_the_traffic_of_what_is_placed_elsewhere(
    house: RpcHouse,
) -> None:
    await place_job(house, "gpu02")
    agent = Agent(house)
    await agent.hello()
    evidence = a_message(job_id="1")
    evidence.fence.attempt = 1
    await agent.say(profile_evidence=evidence)
    assert await agent.end() is grpc.StatusCode.PERMISSION_DENIED
    assert not any(isinstance(each, say.TakeEvidence) for each in house.control.asked)


async def test_an_agent_cannot_open_with_the_ranks_of_another(house: RpcHouse) -> None:
    await place_job(house, "gpu02")
    agent = Agent(house)
    await agent.say(hello=wire.Hello(facts=wire.NodeFacts(boot_id="b"), ranks=[a_report(1)]))
    assert await agent.end() is grpc.StatusCode.PERMISSION_DENIED
    house.audit.close()
    assert '"decision":"PERMISSION_DENIED"' in house.audit_path.read_text()


async def test_an_agent_cannot_speak_of_the_progress_of_anothers_job(house: RpcHouse) -> None:
    await place_job(house, "gpu02")
    agent = Agent(house)
    await agent.hello()
    progress = wire.RankProgress(job_id="1", node_rank=0, step=10**9)
    progress.fence.epoch, progress.fence.attempt = 3, 1
    await agent.say(heartbeat=wire.Heartbeat(sequence=1, progress=[progress]))
    assert await agent.end() is grpc.StatusCode.PERMISSION_DENIED


async def test_a_report_of_an_attempt_that_nobody_knows_is_for_the_loop_to_judge(
    house: RpcHouse,
) -> None:
    agent = Agent(house)
    await agent.hello()
    await agent.say(report=a_report(9, job_id=4711))
    assert (await agent.hear()).report_ack.sequence == 9


async def test_a_forgotten_node_is_cut_off_at_its_next_heartbeat(house: RpcHouse) -> None:
    agent = Agent(house)
    await agent.hello()
    del house.control.published.all_nodes[GPU01]
    await agent.say(heartbeat=wire.Heartbeat(sequence=1))
    assert await agent.end() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_stopping_master_ends_its_sessions(house: RpcHouse) -> None:
    agent = Agent(house)
    await agent.hello()
    stopping = asyncio.create_task(house.server.stop(DEADLINE_S))
    assert await agent.end() is grpc.StatusCode.UNAVAILABLE
    await stopping
