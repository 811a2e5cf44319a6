"""A command inside a job, between its caller and an agent that says what a test wants."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlq.v1 import agent_service_pb2 as agent_wire
from dlq.v1 import exec_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq.v1.agent_service_pb2_grpc import AgentServiceStub
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.pki import Role
from dlq_master.model.ids import JobId
from dlq_master.relay.child import RelayChild
from dlq_master.rpc.agents.exec_relay import MESSAGES_WAITING
from dlq_master.rpc.calls.certificate import MasterCertificate
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house

pytestmark = pytest.mark.integration


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        alice = JobServiceStub(house.channel_as("alice", Role.USER))
        request = wire.SubmitJobRequest(request_id="r")
        request.spec.command.append("/bin/true")
        request.spec.resources.gpu_count = 1
        await alice.SubmitJob(request, timeout=DEADLINE_S)
        yield house


class ExecAgent:
    """An agent that answers OpenExec as it is told to."""

    def __init__(self, house: RpcHouse, node_id: str = "gpu01") -> None:
        self.stub = AgentServiceStub(house.channel_as(node_id, Role.NODE))
        self.session: Any = self.stub.Session()

    async def connect(self) -> None:
        facts = agent_wire.NodeFacts(boot_id="b")
        await self.session.write(agent_wire.SessionRequest(hello=agent_wire.Hello(facts=facts)))
        await self.session.read()

    async def asked(self) -> agent_wire.OpenExecCommand:
        message = await asyncio.wait_for(self.session.read(), DEADLINE_S)
        assert message.command.sequence == 0, "answered by ServeExec, not by CommandResult"
        command = message.command.open_exec
        assert isinstance(command, agent_wire.OpenExecCommand)
        return command

    async def serve(self, relay_id: str) -> Any:
        """A stream that has named its relay."""
        call = self.stub.ServeExec(timeout=DEADLINE_S)
        await call.write(agent_wire.ServeExecRequest(relay_id=relay_id))
        return call


def said(**output: Any) -> agent_wire.ServeExecRequest:
    return agent_wire.ServeExecRequest(output=exec_pb2.ExecOutput(**output))


def ended(**how: Any) -> agent_wire.ServeExecRequest:
    return said(ended=exec_pb2.ExecEnded(**how))


def opening(job_id: str = "1", *command: str, **more: Any) -> wire.ExecJobRequest:
    spec = exec_pb2.ExecSpec(command=command or ("id",))
    return wire.ExecJobRequest(opening=wire.ExecJobOpening(job_id=job_id, spec=spec, **more))


def stdin(data: bytes) -> wire.ExecJobRequest:
    return wire.ExecJobRequest(input=exec_pb2.ExecInput(stdin=data))


async def execute(
    house: RpcHouse,
    name: str = "alice",
    role: Role = Role.USER,
    *,
    first: wire.ExecJobRequest | None = None,
) -> Any:
    stub = JobServiceStub(house.channel_as(name, role))
    call = stub.ExecJob(timeout=DEADLINE_S)
    await call.write(first or opening())
    return call


async def outputs(call: Any) -> list[exec_pb2.ExecOutput]:
    return [each.output async for each in call]


async def a_running_command(house: RpcHouse, **more: Any) -> tuple[Any, Any]:
    """The caller's and the agent's stream of one command."""
    house.control.place(JobId(1), "gpu01")
    agent = ExecAgent(house)
    await agent.connect()
    call = await execute(house, **more)
    serving = await agent.serve((await agent.asked()).relay_id)
    spec = await asyncio.wait_for(serving.read(), DEADLINE_S)
    assert spec.HasField("spec")
    # The session is kept for as long as its stub is.
    serving.agent = agent
    return call, serving


def audit(house: RpcHouse) -> list[dict[str, str]]:
    house.audit.close()
    lines = [json.loads(line) for line in house.audit_path.read_text().splitlines()]
    return [line for line in lines if line["method"].endswith("/ExecJob")]


async def test_bytes_pass_both_ways_and_the_end_is_told_last(house: RpcHouse) -> None:
    call, serving = await a_running_command(house, first=opening("1", "cat", "-n"))
    await call.write(stdin(b"hello"))
    assert (await serving.read()).input.stdin == b"hello"
    await serving.write(said(started=exec_pb2.ExecStarted()))
    await serving.write(said(stdout=b"out"))
    await serving.write(said(stderr=b"err"))
    await serving.write(ended(exit_code=3))
    await serving.done_writing()
    started, out, err, end = await outputs(call)
    assert (started.started.attempt, started.started.node_id) == (1, "gpu01")
    assert (out.stdout, err.stderr) == (b"out", b"err")
    assert (end.ended.exit_code, end.ended.HasField("exit_code")) == (3, True)
    assert await call.code() is grpc.StatusCode.OK


async def test_the_node_of_the_wanted_rank_is_asked_with_the_attempts_fence(
    house: RpcHouse,
) -> None:
    house.control.place(JobId(1), "gpu02", "gpu01")
    agent = ExecAgent(house, "gpu01")
    await agent.connect()
    call = await execute(house, first=opening("1", "id", node_rank=1))
    command = await agent.asked()
    assert (command.job_id, command.node_rank) == ("1", 1)
    assert (command.fence.epoch, command.fence.attempt) == (3, 1)
    call.cancel()


async def test_another_users_job_is_not_there(house: RpcHouse) -> None:
    house.control.place(JobId(1), "gpu01")
    assert await refusal(await execute(house, "bob")) is grpc.StatusCode.NOT_FOUND
    assert [(line["who"], line["decision"], line["object"]) for line in audit(house)] == [
        ("bob", "HIDDEN", "1")
    ]


async def test_an_operator_may_look_at_a_job_but_not_act_as_its_user(house: RpcHouse) -> None:
    house.control.place(JobId(1), "gpu01")
    call = await execute(house, "olga", Role.OPERATOR)
    assert await refusal(call) is grpc.StatusCode.PERMISSION_DENIED


async def test_an_admin_may_and_it_is_in_the_audit_before_it_runs(house: RpcHouse) -> None:
    call, _ = await a_running_command(
        house, name="root", role=Role.ADMIN, first=opening("1", "cat", "/secret")
    )
    call.cancel()
    lines = audit(house)
    assert lines[0]["decision"] == "STARTED"
    assert lines[0]["who"] == "root"
    assert lines[0]["object"] == "1.1 rank 0: cat", "arguments may hold secrets"


async def test_its_end_is_in_the_audit_with_its_job(house: RpcHouse) -> None:
    call, serving = await a_running_command(house)
    await serving.write(ended(exit_code=0))
    await outputs(call)
    assert [(line["decision"], line["object"]) for line in audit(house)] == [
        ("STARTED", "1.1 rank 0: id"),
        ("OK", "1"),
    ]


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (wire.ExecJobRequest(), grpc.StatusCode.INVALID_ARGUMENT),
        (stdin(b"x"), grpc.StatusCode.INVALID_ARGUMENT),
        (opening("99"), grpc.StatusCode.NOT_FOUND),
        (opening("1", ""), grpc.StatusCode.INVALID_ARGUMENT),
        (opening("1", "x" * 65_536), grpc.StatusCode.INVALID_ARGUMENT),
        (opening("1", *["x"] * 5000), grpc.StatusCode.INVALID_ARGUMENT),
        (opening("1", "a\0b"), grpc.StatusCode.INVALID_ARGUMENT),
        (opening("1", "id", node_rank=1), grpc.StatusCode.INVALID_ARGUMENT),
        (opening("1", "id", node_rank=-1), grpc.StatusCode.INVALID_ARGUMENT),
        (opening("1"), grpc.StatusCode.UNAVAILABLE),  # the node has no session
    ],
)
async def test_what_cannot_be_meant_is_refused(
    house: RpcHouse, first: wire.ExecJobRequest, code: grpc.StatusCode
) -> None:
    house.control.place(JobId(1), "gpu01")
    assert await refusal(await execute(house, first=first)) is code


async def test_a_job_that_does_not_run_has_no_inside(house: RpcHouse) -> None:
    assert await refusal(await execute(house)) is grpc.StatusCode.FAILED_PRECONDITION


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("not_running", grpc.StatusCode.FAILED_PRECONDITION),
        ("too_many", grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
)
async def test_an_agents_refusal_is_an_error_of_the_call(
    house: RpcHouse, word: str, code: grpc.StatusCode
) -> None:
    call, serving = await a_running_command(house)
    await serving.write(ended(error=word))
    assert await refusal(call) is code


async def test_words_of_an_agent_are_made_safe_to_show(house: RpcHouse) -> None:
    call, serving = await a_running_command(house)
    await serving.write(ended(exit_code=127, error="no \x1b[31mfile"))
    (end,) = await outputs(call)
    assert end.ended.error == "no ?[31mfile"


async def test_a_caller_who_goes_away_ends_the_agents_stream_with_an_error(house: RpcHouse) -> None:
    call, serving = await a_running_command(house)
    call.cancel()
    assert await asyncio.wait_for(serving.code(), DEADLINE_S) is grpc.StatusCode.NOT_FOUND


def polite_opening() -> wire.ExecJobRequest:
    spec = exec_pb2.ExecSpec(command=["id"], resume_key="k" * 32, says_left=True)
    return wire.ExecJobRequest(opening=wire.ExecJobOpening(job_id="1", spec=spec))


async def test_the_line_of_a_caller_who_says_when_he_leaves_is_lost_without_that(
    house: RpcHouse,
) -> None:
    call, serving = await a_running_command(house, first=polite_opening())
    call.cancel()
    assert await asyncio.wait_for(serving.code(), DEADLINE_S) is grpc.StatusCode.UNAVAILABLE


async def test_a_caller_who_says_that_he_leaves_has_gone(house: RpcHouse) -> None:
    call, serving = await a_running_command(house, first=polite_opening())
    await call.write(wire.ExecJobRequest(input=exec_pb2.ExecInput(left=True)))
    assert await asyncio.wait_for(serving.code(), DEADLINE_S) is grpc.StatusCode.NOT_FOUND
    assert await asyncio.wait_for(call.code(), DEADLINE_S) is not grpc.StatusCode.OK


async def test_a_removed_user_does_not_come_back(house: RpcHouse) -> None:
    call, serving = await a_running_command(house, first=polite_opening())
    del house.control.published.all_users["alice"]
    assert house.server.open_calls.look() == 1
    assert await asyncio.wait_for(serving.code(), DEADLINE_S) is grpc.StatusCode.NOT_FOUND
    assert await asyncio.wait_for(call.code(), DEADLINE_S) is grpc.StatusCode.UNAUTHENTICATED


async def test_input_is_sent_as_it_is_taken_so_that_the_end_never_waits_behind_it(
    house: RpcHouse,
) -> None:
    call, serving = await a_running_command(house)
    for _ in range(6):
        await call.write(stdin(b"x" * 65_536))
    for _ in range(4):
        assert len((await serving.read()).input.stdin) == 65_536
    fifth = asyncio.create_task(serving.read())
    await serving.write(agent_wire.ServeExecRequest(stdin_taken_bytes=1))
    await serving.write(said(stdout=b"one byte of room is not enough"))
    assert (await call.read()).output.stdout
    assert not fifth.done()
    await serving.write(agent_wire.ServeExecRequest(stdin_taken_bytes=65_536))
    assert len((await fifth).input.stdin) == 65_536
    call.cancel()
    assert await asyncio.wait_for(serving.code(), DEADLINE_S) is grpc.StatusCode.NOT_FOUND


async def test_an_agent_that_goes_away_is_told_to_the_caller(house: RpcHouse) -> None:
    call, serving = await a_running_command(house)
    serving.cancel()
    assert await refusal(call) is grpc.StatusCode.UNAVAILABLE


async def test_a_caller_who_says_no_more_keeps_the_command(house: RpcHouse) -> None:
    call, serving = await a_running_command(house)
    await call.write(wire.ExecJobRequest(input=exec_pb2.ExecInput(stdin_end=True)))
    await call.done_writing()
    assert (await serving.read()).input.stdin_end
    await serving.write(said(stdout=b"still here"))
    await serving.write(ended(exit_code=0))
    assert [each.stdout for each in await outputs(call)] == [b"still here", b""]


async def test_a_command_that_does_not_read_holds_its_caller_up(house: RpcHouse) -> None:
    """Memory of the master is bounded: a caller may write until the windows are full, no
    further.
    """
    call, serving = await a_running_command(house)
    written = 0

    async def write_on() -> None:
        nonlocal written
        while True:
            await asyncio.wait_for(call.write(stdin(b"x" * 65_536)), 1.0)
            written += 1

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(write_on(), DEADLINE_S / 2)
    assert MESSAGES_WAITING < written < 1000
    serving.cancel()


@pytest.mark.parametrize(
    "bad",
    [stdin(b"x" * 65_537), opening()],
    ids=["too_large", "a_second_opening"],
)
async def test_a_caller_who_says_what_must_not_be_said_is_cut_off(
    house: RpcHouse, bad: wire.ExecJobRequest
) -> None:
    call, serving = await a_running_command(house)
    await call.write(bad)
    assert await refusal(call) is grpc.StatusCode.INVALID_ARGUMENT
    assert await asyncio.wait_for(serving.code(), DEADLINE_S) is grpc.StatusCode.NOT_FOUND


async def test_an_agent_that_says_too_much_at_once_is_cut_off(house: RpcHouse) -> None:
    call, serving = await a_running_command(house)
    await serving.write(said(stdout=b"x" * 65_537))
    assert await refusal(call) is grpc.StatusCode.UNAVAILABLE
    assert await asyncio.wait_for(serving.code(), DEADLINE_S) is grpc.StatusCode.INVALID_ARGUMENT


async def test_another_node_gets_no_command(house: RpcHouse) -> None:
    house.control.place(JobId(1), "gpu01")
    agent = ExecAgent(house)
    await agent.connect()
    call = await execute(house)
    relay_id = (await agent.asked()).relay_id
    thief = await ExecAgent(house, "gpu02").serve(relay_id)
    assert await refusal(thief) is grpc.StatusCode.PERMISSION_DENIED
    call.cancel()


async def test_a_command_is_run_once(house: RpcHouse) -> None:
    house.control.place(JobId(1), "gpu01")
    agent = ExecAgent(house)
    await agent.connect()
    call = await execute(house)
    relay_id = (await agent.asked()).relay_id
    first = await agent.serve(relay_id)
    await first.read()
    assert await refusal(await agent.serve(relay_id)) is grpc.StatusCode.ALREADY_EXISTS
    call.cancel()


async def test_a_relay_that_nobody_opened_is_not_there(house: RpcHouse) -> None:
    assert await refusal(await ExecAgent(house).serve("made up")) is grpc.StatusCode.NOT_FOUND


async def test_a_user_who_is_removed_loses_the_command(house: RpcHouse) -> None:
    call, serving = await a_running_command(house)
    del house.control.published.all_users["alice"]
    await serving.write(said(stdout=b"x"))
    assert await refusal(call) is grpc.StatusCode.UNAUTHENTICATED
    assert await asyncio.wait_for(serving.code(), DEADLINE_S) is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    "spec",
    [
        exec_pb2.ExecSpec(command=["cat"], forward=True),
        exec_pb2.ExecSpec(command=["dlq-forward", "80"], forward=True),
        exec_pb2.ExecSpec(command=["dlq-forward"], forward=True, terminal=True),
    ],
)
async def test_a_forward_is_nothing_else(house: RpcHouse, spec: exec_pb2.ExecSpec) -> None:
    house.control.place(JobId(1), "gpu01")
    first = wire.ExecJobRequest(opening=wire.ExecJobOpening(job_id="1", spec=spec))
    assert await refusal(await execute(house, first=first)) is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(("name", "role"), [("bob", Role.USER), ("olga", Role.OPERATOR)])
async def test_a_forward_is_for_the_jobs_user(house: RpcHouse, name: str, role: Role) -> None:
    house.control.place(JobId(1), "gpu01")
    spec = exec_pb2.ExecSpec(command=["dlq-forward"], forward=True)
    first = wire.ExecJobRequest(opening=wire.ExecJobOpening(job_id="1", spec=spec))
    codes = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.NOT_FOUND)
    assert await refusal(await execute(house, name, role, first=first)) in codes


async def test_a_forward_is_on_record_with_its_name(house: RpcHouse) -> None:
    spec = exec_pb2.ExecSpec(command=["dlq-forward"], forward=True)
    first = wire.ExecJobRequest(opening=wire.ExecJobOpening(job_id="1", spec=spec))
    _, serving = await a_running_command(house, first=first)
    assert serving is not None
    assert audit(house)[0]["object"] == "1.1 rank 0: dlq-forward"


LARGE = 512 * 1024


async def test_larger_pieces_pass_where_both_ends_take_them(house: RpcHouse) -> None:
    house.control.place(JobId(1), "gpu01")
    agent = ExecAgent(house)
    await agent.connect()
    spec = exec_pb2.ExecSpec(command=["dlq-forward"], forward=True, largest_piece_bytes=1 << 30)
    first = wire.ExecJobRequest(opening=wire.ExecJobOpening(job_id="1", spec=spec))
    call = await execute(house, first=first)
    serving: Any = agent.stub.ServeExec(timeout=DEADLINE_S)
    named = (await agent.asked()).relay_id
    await serving.write(agent_wire.ServeExecRequest(relay_id=named, largest_piece_bytes=1 << 30))
    told = await asyncio.wait_for(serving.read(), DEADLINE_S)
    assert told.largest_piece_bytes == LARGE, "no larger ones than the master takes"
    await serving.write(said(started=exec_pb2.ExecStarted()))
    assert (await call.read()).output.started.largest_piece_bytes == LARGE
    await call.write(stdin(b"i" * LARGE))
    assert (await serving.read()).input.stdin == b"i" * LARGE
    await serving.write(said(stdout=b"o" * LARGE))
    assert (await call.read()).output.stdout == b"o" * LARGE
    await serving.write(said(stdout=b"o" * (LARGE + 1)))
    assert await asyncio.wait_for(call.code(), DEADLINE_S) is grpc.StatusCode.UNAVAILABLE


async def test_ends_that_say_nothing_get_pieces_as_before(house: RpcHouse) -> None:
    call, serving = await a_running_command(house)
    await serving.write(said(started=exec_pb2.ExecStarted(largest_piece_bytes=LARGE)))
    assert (await call.read()).output.started.largest_piece_bytes == 64 * 1024
    await call.write(stdin(b"i" * (64 * 1024 + 1)))
    assert await asyncio.wait_for(call.code(), DEADLINE_S) is grpc.StatusCode.INVALID_ARGUMENT


KEY = "k" * 32


def relay_opening() -> wire.ExecJobRequest:
    spec = exec_pb2.ExecSpec(command=["cat"], resumed=True, relay=True, resume_key=KEY)
    return wire.ExecJobRequest(opening=wire.ExecJobOpening(job_id="1", spec=spec))


@pytest.fixture
async def relayed(house: RpcHouse) -> AsyncIterator[RelayChild]:
    """The keeper of a real relay, in a house whose master has none so far."""
    execs = house.server._execs
    certificate = MasterCertificate(house.authority, house.clock)
    child = RelayChild("127.0.0.1:0", "", certificate.shown)
    execs._beside = lambda: child
    yield child
    await execs.close()


async def test_without_a_relay_none_is_offered_and_none_is_there(house: RpcHouse) -> None:
    call, serving = await a_running_command(house)
    await serving.write(said(started=exec_pb2.ExecStarted(relay=True)))
    assert not (await call.read()).output.started.relay
    assert await refusal(await execute(house, first=relay_opening())) is grpc.StatusCode.UNAVAILABLE


async def test_both_ends_hear_of_the_relay_each_with_a_ticket(
    house: RpcHouse, relayed: RelayChild
) -> None:
    house.control.place(JobId(1), "gpu01")
    agent = ExecAgent(house)
    await agent.connect()
    call = await execute(house, first=relay_opening())
    told = (await asyncio.wait_for(call.read(), DEADLINE_S)).output.relay
    asked = await agent.asked()
    assert asked.relay_address == told.address
    assert told.address.startswith(":"), "at the host at which the master is dialled"
    assert asked.relay_ticket
    assert asked.relay_key == KEY, "no other command may be taken up there"
    assert told.ticket not in ("", asked.relay_ticket)
    assert (asked.job_id, asked.fence.epoch, asked.fence.attempt) == ("1", 3, 1)
    assert [line["decision"] for line in audit(house)] == ["RELAYED"]
    call.cancel()


async def test_a_relay_that_dies_is_told_and_the_next_caller_gets_another_one(
    house: RpcHouse, relayed: RelayChild
) -> None:
    house.control.place(JobId(1), "gpu01")
    agent = ExecAgent(house)
    await agent.connect()
    call = await execute(house, first=relay_opening())
    await asyncio.wait_for(call.read(), DEADLINE_S)
    former = relayed.pid
    assert former is not None
    os.kill(former, signal.SIGKILL)
    assert await asyncio.wait_for(call.code(), DEADLINE_S) is grpc.StatusCode.UNAVAILABLE
    relayed._rest_until_s = 0.0  # it would rest a moment
    again = await execute(house, first=relay_opening())
    assert (await asyncio.wait_for(again.read(), DEADLINE_S)).output.relay.ticket
    assert relayed.pid != former
    again.cancel()


async def test_a_removed_user_loses_the_line(house: RpcHouse, relayed: RelayChild) -> None:
    house.control.place(JobId(1), "gpu01")
    agent = ExecAgent(house)
    await agent.connect()
    call = await execute(house, first=relay_opening())
    await asyncio.wait_for(call.read(), DEADLINE_S)
    del house.control.published.all_users["alice"]
    assert house.server.open_calls.look() == 1
    assert await asyncio.wait_for(call.code(), DEADLINE_S) is grpc.StatusCode.UNAUTHENTICATED
    assert not relayed._pairs


@pytest.mark.parametrize(("name", "role"), [("bob", Role.USER), ("olga", Role.OPERATOR)])
async def test_a_line_is_for_the_jobs_user(
    house: RpcHouse, relayed: RelayChild, name: str, role: Role
) -> None:
    house.control.place(JobId(1), "gpu01")
    codes = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.NOT_FOUND)
    assert await refusal(await execute(house, name, role, first=relay_opening())) in codes
    assert relayed.pid is None


async def test_a_command_does_not_begin_at_the_relay(house: RpcHouse) -> None:
    house.control.place(JobId(1), "gpu01")
    first = relay_opening()
    first.opening.spec.resumed = False
    assert await refusal(await execute(house, first=first)) is grpc.StatusCode.INVALID_ARGUMENT
