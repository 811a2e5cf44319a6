"""The TLS below it all: renewed without a restart, and no certificate good for another purpose."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from grpc import aio

from dlq.v1 import queue_service_pb2 as queues
from dlq.v1.queue_service_pb2_grpc import QueueServiceStub
from dlq_common.clock import SteadyClock
from dlq_common.identity.pki import Authority, Role, new_key_and_csr
from dlq_master.rpc.calls.certificate import MasterCertificate
from dlq_master.rpc.server import HANDSHAKE_TIMEOUT_MS, KEEPALIVE, bind
from support.fake_clock import FakeClock
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house

pytestmark = pytest.mark.integration

DAY_S = 86_400.0


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


async def presented(port: int) -> str:
    """The certificate that a server presents to anybody."""
    return await asyncio.to_thread(
        ssl.get_server_certificate, ("127.0.0.1", port), timeout=DEADLINE_S
    )


async def test_the_masters_certificate_is_renewed_while_it_serves() -> None:
    clock = FakeClock(SteadyClock().now_s())
    certificate = MasterCertificate(Authority.create("lab", clock.now_s()), clock)
    server = aio.server()
    port = server.add_secure_port("127.0.0.1:0", certificate.credentials(mutual=False))
    await server.start()
    try:
        first = await presented(port)
        clock.advance(19 * DAY_S)
        assert await presented(port) == first
        clock.advance(2 * DAY_S)
        renewed = await presented(port)
        assert renewed != first
        assert await presented(port) == renewed
    finally:
        await server.stop(None)


async def test_the_masters_own_certificate_opens_no_door(house: RpcHouse) -> None:
    made = new_key_and_csr("dlq-master")
    certificate = house.authority.sign_master(made.request, house.clock.now_s())
    stub = QueueServiceStub(house.channel(made.key, certificate))
    call = stub.GetCluster(queues.GetClusterRequest(), timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(("name", "role"), [("gpu01", Role.NODE), ("root", Role.ADMIN)])
async def test_nobody_can_pass_for_the_master_with_a_certificate_of_theirs(
    house: RpcHouse, name: str, role: Role
) -> None:
    key, certificate = house.certificate(name, role)
    rogue = aio.server()
    credentials = grpc.ssl_server_credentials(
        [(key, certificate)], house.authority.certificate_pem(), require_client_auth=False
    )
    port = rogue.add_secure_port("127.0.0.1:0", credentials)
    await rogue.start()
    try:
        channel = house.dial(port, *house.certificate("alice", Role.USER))
        call = QueueServiceStub(channel).GetCluster(queues.GetClusterRequest(), timeout=DEADLINE_S)
        assert await refusal(call) is grpc.StatusCode.UNAVAILABLE
    finally:
        await rogue.stop(None)


async def test_a_plain_connection_gets_nothing(house: RpcHouse) -> None:
    async with aio.insecure_channel(f"127.0.0.1:{house.server.api_port}") as channel:
        call = QueueServiceStub(channel).GetCluster(queues.GetClusterRequest(), timeout=DEADLINE_S)
        assert await refusal(call) is grpc.StatusCode.UNAVAILABLE


async def test_a_port_that_is_taken_is_an_error_and_not_shared(house: RpcHouse) -> None:
    second = aio.server(options=KEEPALIVE)
    certificate = MasterCertificate(house.authority, house.clock)
    with pytest.raises(OSError, match="cannot listen"):
        bind(second, f"127.0.0.1:{house.server.api_port}", certificate, mutual=True)
    await second.stop(None)


async def test_a_connection_that_never_ends_its_hello_is_closed(house: RpcHouse) -> None:
    ports = (int(house.server.advertised.rpartition(":")[2]), house.server.join_port)
    lines = [await asyncio.open_connection("127.0.0.1", port) for port in ports]
    for _, writer in lines:
        writer.write(b"\x16\x03\x01")  # the head of a TLS record, and nothing after it
    async with asyncio.timeout(3 * HANDSHAKE_TIMEOUT_MS / 1000.0):
        for reader, _ in lines:
            assert await reader.read() == b""
    for _, writer in lines:
        writer.close()
