"""Two masters, of which one stands by: clients, the web server and agents find the leader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from dlq.v1 import identity_service_pb2, job_service_pb2
from dlq.v1.identity_service_pb2_grpc import JoinServiceStub
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_client.line.connection import Connection
from dlq_client.line.errors import from_rpc_error
from dlq_client.line.identity import Identity, certified
from dlq_client.queues import Queues
from dlq_common.clock import SteadyClock
from dlq_common.errors import NotLeader, Unavailable
from dlq_common.identity.pki import Role
from dlq_master.rpc.calls.signs import Signs
from dlq_master.rpc.standing_by import StandbyServer
from dlq_web.line.calls import MasterLine
from dlq_web.line.methods import named
from support.agent_process import AgentProcess
from support.rpc_house import DEADLINE_S, RpcHouse, rpc_house
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
