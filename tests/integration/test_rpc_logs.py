"""Output on its way from an agent through the master to its reader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from dlq.v1 import agent_service_pb2 as agent_wire
from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.pki import Role
from dlq_master.model.attempts.attempt import AttemptState
from dlq_master.model.ids import JobId, NodeId
from dlq_master.rpc.agents.checkpoint_places import CheckpointPlaces
from dlq_master.rpc.agents.logs_relay import CHUNKS_WAITING, LogsRelay
from dlq_master.rpc.agents.sessions import Sessions
from support.fake_clock import SeededIds
from support.log_agent import LogAgent, piece
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house

pytestmark = pytest.mark.integration

GPU01 = NodeId("gpu01")


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        alice = JobServiceStub(house.channel_as("alice", Role.USER))
        request = wire.SubmitJobRequest(request_id="r")
        request.spec.command.append("/bin/true")
        request.spec.resources.gpu_count = 1
        await alice.SubmitJob(request, timeout=DEADLINE_S)
        yield house


def read(house: RpcHouse, name: str = "alice", **request: Any) -> Any:
    stub = JobServiceStub(house.channel_as(name, Role.USER))
    return stub.ReadLogs(wire.ReadLogsRequest(job_id="1", **request), timeout=DEADLINE_S)


async def collect(call: Any) -> list[tuple[int, bytes, bool]]:
    return [(each.offset, each.data, each.end) async for each in call]


async def test_output_arrives_in_order_with_its_offsets(house: RpcHouse) -> None:
    house.control.place(JobId(1), "gpu01")
    agent = LogAgent(house)
    await agent.connect()
    reading = asyncio.create_task(collect(read(house, offset=10, follow=True)))
    command = await agent.asked()
    assert (command.job_id, command.fence.epoch, command.fence.attempt) == ("1", 3, 1)
    assert (command.offset, command.follow) == (10, True)
    pushed = await agent.push(
        command.relay_id, piece(10, b"one\n"), piece(14, b"two\n"), piece(18, b"", end=True)
    )
    assert pushed is grpc.StatusCode.OK
    assert await reading == [(10, b"one\n", False), (14, b"two\n", False), (18, b"", True)]


async def test_a_gang_members_output_is_asked_of_its_own_node(house: RpcHouse) -> None:
    house.control.place(JobId(1), "gpu02", "gpu01")
    agent = LogAgent(house, "gpu01")
    await agent.connect()
    reading = asyncio.create_task(collect(read(house, node_rank=1)))
    command = await agent.asked()
    assert command.node_rank == 1
    await agent.push(command.relay_id, piece(0, b"x", end=True))
    assert await reading == [(0, b"x", True)]


async def test_the_output_of_a_node_without_a_session_is_unavailable(house: RpcHouse) -> None:
    house.control.place(JobId(1), "gpu01")
    assert await refusal(read(house)) is grpc.StatusCode.UNAVAILABLE


async def test_a_job_that_never_started_has_no_output(house: RpcHouse) -> None:
    assert await refusal(read(house)) is grpc.StatusCode.FAILED_PRECONDITION


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"node_rank": 1}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"node_rank": -1}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"attempt": 2}, grpc.StatusCode.NOT_FOUND),
        ({"attempt": -1}, grpc.StatusCode.NOT_FOUND),
    ],
)
async def test_output_that_cannot_be_is_refused(
    house: RpcHouse, request_: dict[str, Any], code: grpc.StatusCode
) -> None:
    house.control.place(JobId(1), "gpu01")
    assert await refusal(read(house, **request_)) is code


async def test_an_agent_that_breaks_off_leaves_its_reader_to_resume(house: RpcHouse) -> None:
    house.control.place(JobId(1), "gpu01")
    agent = LogAgent(house)
    await agent.connect()
    reading = asyncio.create_task(refusal(read(house, follow=True)))
    command = await agent.asked()
    await agent.push(command.relay_id, piece(0, b"half"))
    assert await reading is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (AttemptState.RUNNING, grpc.StatusCode.UNAVAILABLE),
        (AttemptState.FAILED, grpc.StatusCode.NOT_FOUND),
    ],
)
async def test_an_agent_without_the_output_says_so(
    house: RpcHouse, state: AttemptState, code: grpc.StatusCode
) -> None:
    attempt = house.control.place(JobId(1), "gpu01")
    house.control.published.all_attempts[attempt.key] = attempt._replace(state=state)
    agent = LogAgent(house)
    await agent.connect()
    reading = asyncio.create_task(refusal(read(house)))
    command = await agent.asked()
    await agent.push(command.relay_id, agent_wire.PushLogRequest(error="unknown_rank"))
    assert await reading is code


async def test_another_node_cannot_push_into_a_transfer(house: RpcHouse) -> None:
    house.control.place(JobId(1), "gpu01")
    agent, other = LogAgent(house), LogAgent(house, "gpu02")
    await agent.connect()
    reading = asyncio.create_task(collect(read(house)))
    command = await agent.asked()
    forged = await other.push(command.relay_id, piece(0, b"forged", end=True))
    assert forged is grpc.StatusCode.PERMISSION_DENIED
    await agent.push(command.relay_id, piece(0, b"real", end=True))
    assert await reading == [(0, b"real", True)]


async def test_a_transfer_is_pushed_once(house: RpcHouse) -> None:
    house.control.place(JobId(1), "gpu01")
    agent = LogAgent(house)
    await agent.connect()
    call = read(house, follow=True)
    reading = asyncio.create_task(call.read())
    command = await agent.asked()
    first = agent.stub.PushLog(timeout=DEADLINE_S)
    start = piece(0, b"a")
    start.relay_id = command.relay_id
    await first.write(start)
    await asyncio.wait_for(reading, DEADLINE_S)
    again = await agent.push(command.relay_id, piece(0, b"b"))
    assert again is grpc.StatusCode.ALREADY_EXISTS
    first.cancel()
    call.cancel()


async def test_a_guessed_transfer_is_refused(house: RpcHouse) -> None:
    agent = LogAgent(house)
    assert await agent.push("guess", piece(0, b"x")) is grpc.StatusCode.NOT_FOUND


async def test_a_piece_that_is_too_large_is_refused(house: RpcHouse) -> None:
    house.control.place(JobId(1), "gpu01")
    agent = LogAgent(house)
    await agent.connect()
    reading = asyncio.create_task(refusal(read(house)))
    command = await agent.asked()
    pushed = await agent.push(command.relay_id, piece(0, b"x" * 70_000))
    assert pushed is grpc.StatusCode.INVALID_ARGUMENT
    assert await reading is grpc.StatusCode.UNAVAILABLE


async def test_a_reader_who_leaves_ends_the_push(house: RpcHouse) -> None:
    house.control.place(JobId(1), "gpu01")
    agent = LogAgent(house)
    await agent.connect()
    call = read(house, follow=True)
    reading = asyncio.create_task(call.read())
    command = await agent.asked()
    push = agent.stub.PushLog(timeout=DEADLINE_S)
    first = piece(0, b"x")
    first.relay_id = command.relay_id
    await push.write(first)
    await asyncio.wait_for(reading, DEADLINE_S)
    call.cancel()
    with suppress(aio.AioRpcError, asyncio.InvalidStateError):
        # Each write is taken until the master has learnt of the reader's leaving.
        while not push.done():
            await push.write(piece(1, b"y" * 60_000))
    assert await refusal(push) in (grpc.StatusCode.OK, grpc.StatusCode.NOT_FOUND)


# --- the pipe itself, without a network -----------------------------------------------------------


def a_relay(arrival_timeout_s: float = 0.0) -> LogsRelay:
    sessions = Sessions(CheckpointPlaces("/ckpt", b"seed"))
    sessions.bind(sessions.expect(GPU01), 1, 3, [])
    return LogsRelay(sessions, SeededIds(1), arrival_timeout_s=arrival_timeout_s)


async def test_an_agent_that_does_not_come_is_not_waited_for() -> None:
    with (
        a_relay().opened(GPU01, agent_wire.OpenLogCommand()) as pipe,
        pytest.raises(Exception, match="does not send the output"),
    ):
        async for _ in pipe.chunks():
            pass


async def test_a_slow_reader_makes_the_agent_wait() -> None:
    with a_relay(DEADLINE_S).opened(GPU01, agent_wire.OpenLogCommand()) as pipe:
        for number in range(CHUNKS_WAITING):
            assert await pipe.put(piece(number, b"x"))
        waiting = asyncio.create_task(pipe.put(piece(CHUNKS_WAITING, b"x")))
        await asyncio.sleep(0)
        assert not waiting.done()
        assert (await anext(pipe.chunks())).offset == 0
        assert await waiting


async def test_an_agent_that_waits_for_room_is_told_when_the_reader_leaves() -> None:
    command = agent_wire.OpenLogCommand()
    with a_relay().opened(GPU01, command) as pipe:
        for number in range(CHUNKS_WAITING):
            await pipe.put(piece(number, b"x"))
        waiting = asyncio.create_task(pipe.put(piece(CHUNKS_WAITING, b"x")))
        await asyncio.sleep(0)
    assert await waiting is False
    assert await pipe.put(None) is False
