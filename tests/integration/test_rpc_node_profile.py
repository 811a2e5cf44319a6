"""The profile of an agent on its way through the master: roles, bounds, refusals, early ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from dlq.v1 import admin_service_pb2 as wire
from dlq.v1 import agent_service_pb2 as agent_wire
from dlq.v1 import master_profile_pb2
from dlq.v1.admin_service_pb2_grpc import AdminServiceStub
from dlq.v1.agent_service_pb2_grpc import AgentServiceStub
from dlq_client.admin import Admin
from dlq_client.line.connection import Connection
from dlq_client.line.errors import from_rpc_error
from dlq_common.errors import TryAgain, Unavailable
from dlq_common.identity.pki import Role
from dlq_common.text.wire import to_duration
from dlq_master.rpc.cluster.profiling import MOST_PROFILE_BYTES
from support.harness import Daemons
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house
from support.waiting import wait_until

pytestmark = pytest.mark.integration
LONG_S = 300.0
PIECE = 64 * 1024


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


def _asked(
    house: RpcHouse,
    role: Role,
    node_id: str = "gpu01",
    seconds: float = 5.0,
    *,
    name: str = "olga",
) -> Any:
    stub = AdminServiceStub(house.channel_as(name, role))
    request = wire.ProfileNodeRequest(node_id=node_id, sample_duration=to_duration(seconds))
    return stub.ProfileNode(request, timeout=DEADLINE_S)


class ProfiledAgent:
    """An agent that answers OpenSamples with the pieces it is given."""

    def __init__(self, house: RpcHouse) -> None:
        self.stub = AgentServiceStub(house.channel_as("gpu01", Role.NODE))
        self.session: Any = self.stub.Session()

    async def connect(self) -> None:
        facts = agent_wire.NodeFacts(boot_id="b")
        await self.session.write(agent_wire.SessionRequest(hello=agent_wire.Hello(facts=facts)))
        await self.session.read()

    async def asked(self) -> agent_wire.OpenSamplesCommand:
        message = await asyncio.wait_for(self.session.read(), DEADLINE_S)
        assert message.command.sequence == 0
        order: agent_wire.OpenSamplesCommand = message.command.open_samples
        return order

    async def answers(self, *pieces: agent_wire.PushLogRequest) -> None:
        order = await self.asked()
        call = self.stub.PushLog(timeout=DEADLINE_S)
        try:
            for piece in pieces:
                piece.relay_id = order.relay_id
                await call.write(piece)
            await call.done_writing()
            await call
        except (aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the master has heard enough


@pytest.fixture
async def agent(house: RpcHouse) -> ProfiledAgent:
    one = ProfiledAgent(house)
    await one.connect()
    return one


async def test_it_comes_in_pieces_after_signs_of_life(
    house: RpcHouse, agent: ProfiledAgent
) -> None:
    profile = master_profile_pb2.MasterProfile(sample_count=7)
    profile.functions.add(name="f" * 2 * PIECE)
    told = profile.SerializeToString()
    pieces = [told[at : at + PIECE] for at in range(0, len(told), PIECE)]
    call = _asked(house, Role.OPERATOR)
    answering = asyncio.create_task(
        agent.answers(
            agent_wire.PushLogRequest(),
            *(agent_wire.PushLogRequest(data=piece) for piece in pieces),
            agent_wire.PushLogRequest(end=True),
        )
    )
    assert not (await call.read()).HasField("profile")
    assert (await call.read()).profile == profile
    assert await call.read() is aio.EOF
    await answering


async def test_the_agent_hears_how_long_and_who_asks(house: RpcHouse, agent: ProfiledAgent) -> None:
    call = _asked(house, Role.OPERATOR, seconds=12.0)
    reading = asyncio.ensure_future(call.read())
    order = await agent.asked()
    assert (order.user, order.sample_duration.seconds) == ("olga", 12)
    call.cancel()
    await asyncio.gather(reading, return_exceptions=True)


@pytest.mark.parametrize(("name", "role"), [("alice", Role.USER), ("prism", Role.INFERENCE)])
async def test_it_is_for_operators(
    house: RpcHouse, agent: ProfiledAgent, name: str, role: Role
) -> None:
    assert await refusal(_asked(house, role, name=name)) is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize(
    ("node_id", "seconds", "code"),
    [
        ("gpu01", 0.5, grpc.StatusCode.INVALID_ARGUMENT),
        ("gpu01", 301.0, grpc.StatusCode.INVALID_ARGUMENT),
        ("", 5.0, grpc.StatusCode.INVALID_ARGUMENT),
        ("gpu99", 5.0, grpc.StatusCode.NOT_FOUND),
        ("gpu02", 5.0, grpc.StatusCode.UNAVAILABLE),  # its agent is not connected
    ],
)
async def test_it_is_of_a_connected_node_and_bounded(
    house: RpcHouse, node_id: str, seconds: float, code: grpc.StatusCode
) -> None:
    assert await refusal(_asked(house, Role.OPERATOR, node_id, seconds)) is code


async def test_the_agents_refusal_is_the_masters(house: RpcHouse, agent: ProfiledAgent) -> None:
    answering = asyncio.create_task(
        agent.answers(agent_wire.PushLogRequest(end=True, error="anna takes a profile"))
    )
    with pytest.raises(aio.AioRpcError) as refused:
        await _asked(house, Role.OPERATOR).read()
    error = from_rpc_error(refused.value, "lab")
    assert isinstance(error, TryAgain)
    assert error.what == "anna takes a profile"
    await answering


async def test_an_agent_that_leaves_before_the_end_is_told(
    house: RpcHouse, agent: ProfiledAgent
) -> None:
    answering = asyncio.create_task(agent.answers(agent_wire.PushLogRequest(data=b"x")))
    assert await refusal(_asked(house, Role.OPERATOR)) is grpc.StatusCode.UNAVAILABLE
    await answering


@pytest.mark.parametrize("count", [1, MOST_PROFILE_BYTES // PIECE + 1])
async def test_an_agent_that_sends_no_profile_is_refused(
    house: RpcHouse, agent: ProfiledAgent, count: int
) -> None:
    pieces = [agent_wire.PushLogRequest(data=b"\xff" * PIECE) for _ in range(count)]
    answering = asyncio.create_task(
        agent.answers(*pieces, agent_wire.PushLogRequest(end=True)),
    )
    assert await refusal(_asked(house, Role.OPERATOR)) is grpc.StatusCode.INVALID_ARGUMENT
    await answering


@pytest.fixture
def daemons(tmp_path: Path) -> Daemons:
    return Daemons(tmp_path, ("n1",))


def test_a_real_agent_samples_itself_for_one_caller_at_a_time(daemons: Daemons) -> None:
    with daemons.up(), daemons.connect() as line:
        found = Admin(line).node_profile("n1", 1.5)
        assert found.threads[0].name == "loop"
        assert found.threads[0].sample_count > 0
        assert not any(one.file.startswith("/") for one in found.functions)
        assert not found.turns

        with daemons.connect() as other:
            first = threading.Thread(target=_lost, args=(other, "n1"))
            first.start()
            _heard(daemons, times=2)
            with pytest.raises(TryAgain, match="takes a profile of 300 s"):
                Admin(line).node_profile("n1", 1.0)
            daemons.kill("n1")  # the first caller hears of it at once
            first.join()
            daemons.start("n1")
            daemons.wait_for("n1")
            wait_until(lambda: _profiled(line), what="the next agent takes a profile")


def test_it_ends_when_the_master_is_killed(daemons: Daemons) -> None:
    with daemons.up(), daemons.connect() as line:
        first = threading.Thread(target=_lost, args=(line, "n1"))
        first.start()
        _heard(daemons, times=1)
        daemons.kill("master")
        first.join()
        wait_until(lambda: "profile_ended" in daemons.log("n1"), what="the agent stops sampling")
        daemons.start("master")
        daemons.wait_for("master")
        wait_until(lambda: _profiled(line), what="the agent takes a profile again")


def test_it_ends_when_the_line_to_the_agent_is_silent(daemons: Daemons) -> None:
    with daemons.up(), daemons.connect() as line:
        first = threading.Thread(target=_lost, args=(line, "n1"))
        first.start()
        _heard(daemons, times=1)
        daemons.freeze("n1")
        first.join()  # the master has given the silent agent up
        daemons.thaw("n1")
        wait_until(lambda: "profile_ended" in daemons.log("n1"), what="the agent stops sampling")
        wait_until(lambda: _profiled(line), what="the agent takes a profile again")


def _lost(line: Connection, node_id: str) -> None:
    with pytest.raises(Unavailable):
        Admin(line).node_profile(node_id, LONG_S)


def _heard(daemons: Daemons, *, times: int) -> None:
    wait_until(
        lambda: daemons.log("n1").count("profile_begun") >= times, what="a profile has begun"
    )


def _profiled(line: Connection) -> bool:
    try:
        return Admin(line).node_profile("n1", 1.0).sample_count > 0
    except (TryAgain, Unavailable):  # the node is not back, or its agent has not noticed yet
        return False
