"""Two masters, of which one stands by: clients, the web server and agents find the leader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc
import pytest

from dlq.v1 import admin_service_pb2, identity_service_pb2, job_service_pb2
from dlq.v1.admin_service_pb2_grpc import AdminServiceStub
from dlq.v1.identity_service_pb2_grpc import JoinServiceStub
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_client.admin import leader_of as leader_of_parts
from dlq_client.admin import parts_of
from dlq_client.line.connection import Connection
from dlq_client.line.errors import from_rpc_error
from dlq_client.line.identity import Identity, certified
from dlq_client.queues import Queues
from dlq_common.clock import SteadyClock
from dlq_common.errors import NotLeader, Unavailable
from dlq_common.fence import LeaderFence
from dlq_common.identity.pki import Role
from dlq_common.text.wire import from_duration
from dlq_master.leader.lease import MasterPart
from dlq_master.model.ids import NodeId
from dlq_master.rpc.calls.auth import Door
from dlq_master.rpc.calls.signs import Signs
from dlq_master.rpc.standing_by import StandbyFacts, StandbyServer
from dlq_master.store.batch import User
from dlq_master.store.tables.revocations import Revocation
from dlq_master.store.tables.tenants import GivenGrant
from dlq_web.line.calls import MasterLine
from dlq_web.line.methods import named
from support.agent_process import AgentProcess
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house
from support.stub_master import StubMaster

pytestmark = pytest.mark.integration


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


@pytest.fixture
async def standby(house: RpcHouse) -> AsyncIterator[StandbyServer]:
    """It knows that the house's master leads."""
    server = standing_by(house.authority, leader_of(house))
    await server.start()
    yield server
    await server.stop()


def standing_by(authority: Signs, leader: str) -> StandbyServer:
    return StandbyServer("127.0.0.1:0", "127.0.0.1:0", authority, SteadyClock(), lambda: leader)


def leader_of(house: RpcHouse) -> str:
    return f"127.0.0.1:{house.server.api_port}"


def identity_of(house: RpcHouse, *addresses: str) -> Identity:
    """Alice's, with these masters."""
    pems = house.certificate("alice", Role.USER)
    return certified(*pems, house.authority.certificate_pem(), ",".join(addresses))


async def test_a_standby_refuses_every_call_and_names_the_leader(
    house: RpcHouse, standby: StandbyServer
) -> None:
    channel = house.dial(standby.api_port, *house.certificate("alice", Role.USER))
    stub = JobServiceStub(channel)
    for ask in (
        stub.ListJobs(job_service_pb2.ListJobsRequest()),
        stub.SubmitJob(job_service_pb2.SubmitJobRequest(request_id="once")),
        stub.WatchEvents(job_service_pb2.WatchEventsRequest()).read(),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await ask
        told = from_rpc_error(refused.value, "standby")
        assert isinstance(told, NotLeader)
        assert told.metadata["leader"] == leader_of(house)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE


class People:
    """The rows of users that a standby has read: an operator and a user."""

    revocations: Mapping[str, Revocation] = MappingProxyType({})
    grants: Mapping[str, GivenGrant] = MappingProxyType({})

    def user(self, name: str) -> User | None:
        roles = {"olga": "operator", "alice": "user"}
        return User(name, roles[name], 1, 1, (), 0.0) if name in roles else None

    def node(self, node_id: NodeId) -> None:
        """None is known."""


@pytest.fixture
async def told(house: RpcHouse) -> AsyncIterator[StandbyServer]:
    """A standby that tells its part."""
    part = MasterPart(
        "head2:7320", False, 60.0, leader_of(house), LeaderFence("71", 2, 9), 3.5, 815, 0.25, "", ()
    )
    facts = StandbyFacts(Door("lab", People, SteadyClock(), ()), lambda: part)
    server = StandbyServer(
        "127.0.0.1:0", "127.0.0.1:0", house.authority, SteadyClock(), lambda: "", facts
    )
    await server.start()
    yield server
    await server.stop()


async def test_a_standby_tells_operators_its_part(house: RpcHouse, told: StandbyServer) -> None:
    def stub(name: str, role: Role) -> Any:
        return AdminServiceStub(house.dial(told.api_port, *house.certificate(name, role)))

    request = admin_service_pb2.GetLeaderRequest()
    part = (await stub("olga", Role.OPERATOR).GetLeader(request, timeout=DEADLINE_S)).master
    assert (part.part, part.epoch, part.turn) == ("stands_by", 9, 815)
    assert part.leader == leader_of(house)
    assert from_duration(part.read_ago_duration) == 0.25
    denied, unknown = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED
    assert await refusal(stub("alice", Role.USER).GetLeader(request)) is denied
    assert await refusal(stub("bob", Role.USER).GetLeader(request)) is unknown
    assert await refusal(stub("gpu01", Role.NODE).GetLeader(request)) is unknown
    other = stub("olga", Role.OPERATOR).ListUsers(admin_service_pb2.ListUsersRequest())
    assert await refusal(other) is grpc.StatusCode.UNAVAILABLE


async def test_all_masters_are_asked_also_where_one_is_down(
    house: RpcHouse, told: StandbyServer
) -> None:
    standby, dead = f"127.0.0.1:{told.api_port}", "127.0.0.1:9"
    pems = house.certificate("olga", Role.OPERATOR)
    addresses = ",".join((dead, standby, leader_of(house)))
    identity = certified(*pems, house.authority.certificate_pem(), addresses)
    parts = await asyncio.to_thread(parts_of, identity)
    assert [*parts] == [dead, standby, leader_of(house)]
    assert isinstance(parts[dead], Unavailable)
    found = leader_of_parts(parts)
    assert found is not None
    assert found.part == "alone", "this house has no other master"
    assert leader_of_parts(parts, after=found.epoch) is None


# --- stepping down --------------------------------------------------------------------------------


class FakeLead:
    """The lease of a master whose standbys the test names."""

    def __init__(self) -> None:
        self.standbys: list[str] = []
        self.ended: list[int] = []

    def part(self) -> MasterPart:
        fence = LeaderFence("71", 2, 9)
        return MasterPart("head1:7320", True, 1.0, "head1:7320", fence, 4.0, 7, 0.0, "", ())

    async def ready(self) -> list[str]:
        return self.standbys

    def step_down(self, epoch: int) -> None:
        self.ended.append(epoch)


async def test_the_lead_is_given_up_only_to_a_standby_that_is_ready(tmp_path: Path) -> None:
    lead = FakeLead()
    house = RpcHouse(tmp_path, lead=lead)
    await house.server.start()
    root: Any = AdminServiceStub(house.channel_as("root", Role.ADMIN))
    olga: Any = AdminServiceStub(house.channel_as("olga", Role.OPERATOR))
    try:
        asked = admin_service_pb2.StepDownRequest(request_id="down-1")
        assert (
            await refusal(olga.StepDown(asked, timeout=DEADLINE_S))
            is grpc.StatusCode.PERMISSION_DENIED
        )
        assert (
            await refusal(root.StepDown(asked, timeout=DEADLINE_S))
            is grpc.StatusCode.FAILED_PRECONDITION
        )
        assert lead.ended == []
        told = await olga.GetLeader(admin_service_pb2.GetLeaderRequest(), timeout=DEADLINE_S)
        assert (told.master.part, told.master.turn) == ("leads", 7)
        lead.standbys = ["head2:7320"]
        done = await root.StepDown(asked, timeout=DEADLINE_S)
        lead.standbys = []
        again = await root.StepDown(asked, timeout=DEADLINE_S)
        assert done.epoch == again.epoch
        forced = admin_service_pb2.StepDownRequest(request_id="down-2", force=True)
        assert (await root.StepDown(forced, timeout=DEADLINE_S)).epoch == done.epoch
        assert lead.ended == [done.epoch] * 3
    finally:
        await house.close()
    lines = [line for line in house.audit_path.read_text().splitlines() if "StepDown" in line]
    assert len(lines) == 5


async def test_a_master_without_another_one_goes_on_also_when_forced(house: RpcHouse) -> None:
    root: Any = AdminServiceStub(house.channel_as("root", Role.ADMIN))
    asked = admin_service_pb2.StepDownRequest(request_id="down-1", force=True)
    assert (
        await refusal(root.StepDown(asked, timeout=DEADLINE_S))
        is grpc.StatusCode.FAILED_PRECONDITION
    )


async def test_the_join_port_of_a_standby_refuses_too(
    house: RpcHouse, standby: StandbyServer
) -> None:
    joining = JoinServiceStub(house.dial(standby.join_port, None, None))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await joining.Join(identity_service_pb2.JoinRequest(token="x"))
    assert isinstance(from_rpc_error(refused.value, "standby"), NotLeader)


async def test_a_client_follows_the_word_of_a_standby_at_once(
    house: RpcHouse, standby: StandbyServer
) -> None:
    def ask() -> str:
        with Connection(identity, patience_s=0.0) as connection:
            return Queues(connection).cluster().cluster_name

    identity = identity_of(house, f"127.0.0.1:{standby.api_port}", leader_of(house))
    assert await asyncio.to_thread(ask) == "lab"


async def test_a_client_goes_on_to_the_next_master_when_one_is_dead(house: RpcHouse) -> None:
    def ask() -> str:
        with Connection(identity, patience_s=DEADLINE_S) as connection:
            return Queues(connection).cluster().cluster_name

    identity = identity_of(house, "127.0.0.1:9", leader_of(house))
    assert await asyncio.to_thread(ask) == "lab"


async def test_one_known_address_of_a_standby_is_an_error_that_names_the_leader(
    house: RpcHouse, standby: StandbyServer
) -> None:
    def ask() -> None:
        with Connection(identity, patience_s=0.0) as connection:
            Queues(connection).cluster()

    identity = identity_of(house, f"127.0.0.1:{standby.api_port}")
    with pytest.raises(Unavailable, match=leader_of(house)):
        await asyncio.to_thread(ask)


async def test_the_web_server_asks_the_leader_within_one_call(
    house: RpcHouse, standby: StandbyServer
) -> None:
    identity = identity_of(house, f"127.0.0.1:{standby.api_port}", leader_of(house))
    line = MasterLine(identity, house.clock)
    answer = await line.call(named("JobService", "ListJobs"), job_service_pb2.ListJobsRequest())
    assert isinstance(answer, job_service_pb2.ListJobsResponse)
    await line.close()


async def test_an_agent_joins_and_serves_by_the_master_that_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StubMaster() as master:
        leader = f"127.0.0.1:{master.api_port}"
        standby = standing_by(master.authority, leader)
        await standby.start()
        node = AgentProcess(tmp_path, master)
        monkeypatch.setenv(
            "DLQ_MASTER__JOIN", f"127.0.0.1:{standby.join_port},127.0.0.1:{master.join_port}"
        )
        monkeypatch.setenv("DLQ_MASTER__ADDRESS", f"127.0.0.1:{standby.api_port},{leader}")
        try:
            done = await asyncio.to_thread(node.join, master.token())
            assert done.returncode == 0, done.stderr
            node.start()
            hello = await asyncio.to_thread(
                master.wait_for, lambda: next(iter(master.hellos), None), "hello"
            )
            assert hello.facts.gpus
        finally:
            await asyncio.to_thread(node.clean_up)
            await standby.stop()
