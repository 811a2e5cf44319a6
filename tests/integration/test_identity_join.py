"""Joining: a token lets exactly one key in, once, for a while, and only into its own cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from grpc import aio

from dlq.v1 import admin_service_pb2 as admin
from dlq.v1 import identity_service_pb2 as wire
from dlq.v1 import queue_service_pb2 as queues
from dlq.v1.admin_service_pb2_grpc import AdminServiceStub
from dlq.v1.identity_service_pb2_grpc import IdentityServiceStub, JoinServiceStub
from dlq.v1.queue_service_pb2_grpc import QueueServiceStub
from dlq_common.errors import Unauthenticated, Unavailable
from dlq_common.identity.join_token import JoinTokenText, fetch_pinned_ca, parse_join_token
from dlq_common.identity.pki import Authority, Role, fingerprint, new_key_and_csr, parse_identity
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house

pytestmark = pytest.mark.integration


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


async def make_token(house: RpcHouse, **wishes: object) -> str:
    stub = AdminServiceStub(house.channel_as("root", Role.ADMIN))
    request = admin.CreateJoinTokenRequest(request_id=repr(wishes), **wishes)  # type: ignore[arg-type]
    answer = await stub.CreateJoinToken(request, timeout=DEADLINE_S)
    return str(answer.secret)


async def join(
    house: RpcHouse, token: str, node_id: str = "gpu07", csr: bytes | None = None
) -> wire.JoinResponse:
    request = wire.JoinRequest(
        token=token, certificate_request=csr or new_key_and_csr(node_id).request
    )
    answer = await JoinServiceStub(house.join_channel()).Join(request, timeout=DEADLINE_S)
    assert isinstance(answer, wire.JoinResponse)
    return answer


async def refused(house: RpcHouse, token: str, **more: object) -> grpc.StatusCode:
    with pytest.raises(aio.AioRpcError) as caught:
        await join(house, token, **more)  # type: ignore[arg-type]
    return caught.value.code()


async def test_a_token_becomes_a_certificate_that_opens_the_api(house: RpcHouse) -> None:
    made = new_key_and_csr("gpu07")
    answer = await join(house, await make_token(house), csr=made.request)
    identity = parse_identity(answer.certificate)
    assert (identity.name, identity.role) == ("gpu07", Role.NODE)
    assert answer.api_address == house.server.advertised
    assert answer.ca_certificates == house.authority.certificate_pem()
    stub = QueueServiceStub(house.channel(made.key, answer.certificate))
    cluster = await stub.GetCluster(queues.GetClusterRequest(), timeout=DEADLINE_S)
    assert (cluster.caller, cluster.role) == ("gpu07", "node")


async def test_a_token_lets_one_key_in(house: RpcHouse) -> None:
    token, made = await make_token(house), new_key_and_csr("gpu07")
    await join(house, token, csr=made.request)
    again = await join(house, token, csr=made.request)
    assert parse_identity(again.certificate).name == "gpu07", "a lost answer may be asked for again"
    assert await refused(house, token) is grpc.StatusCode.UNAUTHENTICATED


async def test_an_expired_token_lets_nobody_in(house: RpcHouse) -> None:
    token = await make_token(house)
    stored = house.control.published.all_tokens
    for token_id, each in stored.items():
        stored[token_id] = replace(each, expire_time_s=house.clock.now_s() - 1)
    assert await refused(house, token) is grpc.StatusCode.UNAUTHENTICATED


async def test_a_bound_token_lets_no_other_name_in(house: RpcHouse) -> None:
    token = await make_token(house, node_id="gpu07")
    assert await refused(house, token, node_id="gpu08") is grpc.StatusCode.UNAUTHENTICATED
    assert (await join(house, token, node_id="gpu07")).node_id == "gpu07"


@pytest.mark.parametrize("token", ["", "x" * 10_000, "dlq1.1.aaaaaaaaaaaaaaaaaaaaaaaa." + "0" * 64])
async def test_what_is_no_token_lets_nobody_in(house: RpcHouse, token: str) -> None:
    assert await refused(house, token) is grpc.StatusCode.UNAUTHENTICATED


async def test_a_guessed_secret_lets_nobody_in(house: RpcHouse) -> None:
    real = parse_join_token(await make_token(house))
    guess = JoinTokenText(real.token_id, "A" * len(real.secret), real.ca_fingerprint)
    assert await refused(house, guess.text()) is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("name", ["", "a/b", "../gpu01", "GPU01", "root\n", "a" * 300])
async def test_a_name_that_is_none_lets_nobody_in(house: RpcHouse, name: str) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "x")]
    if 0 < len(name) <= 64:
        subject.append(x509.NameAttribute(NameOID.COMMON_NAME, name))
    key = ec.generate_private_key(ec.SECP256R1())
    csr = (
        x509.CertificateSigningRequestBuilder(x509.Name(subject))
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    token = await make_token(house)
    assert await refused(house, token, csr=csr) is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_join_port_serves_nothing_but_joining(house: RpcHouse) -> None:
    stub = QueueServiceStub(house.join_channel())
    call = stub.GetCluster(queues.GetClusterRequest(), timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.UNIMPLEMENTED


async def test_only_tokens_that_still_work_are_listed(house: RpcHouse) -> None:
    stub = AdminServiceStub(house.channel_as("root", Role.ADMIN))
    await join(house, await make_token(house, node_id="gpu07"))
    await make_token(house, node_id="gpu08")
    fresh = parse_join_token(await make_token(house, node_id="gpu09"))
    stored = house.control.published.all_tokens
    stale = next(token_id for token_id, each in stored.items() if each.node_id == "gpu08")
    stored[stale] = replace(stored[stale], expire_time_s=house.clock.now_s() - 1)
    answer = await stub.ListJoinTokens(admin.ListJoinTokensRequest(), timeout=DEADLINE_S)
    assert [token.token_id for token in answer.tokens] == [fresh.token_id]


async def test_the_secret_of_a_repeated_request_is_not_told_twice(house: RpcHouse) -> None:
    stub = AdminServiceStub(house.channel_as("root", Role.ADMIN))
    request = admin.CreateJoinTokenRequest(request_id="once")
    first = await stub.CreateJoinToken(request, timeout=DEADLINE_S)
    again = await stub.CreateJoinToken(request, timeout=DEADLINE_S)
    assert first.secret
    assert first.join_address == f"127.0.0.1:{house.server.join_port}"
    assert (again.token, again.secret) == (first.token, "")


async def test_the_ca_is_found_by_the_tokens_fingerprint_and_no_other(house: RpcHouse) -> None:
    token = parse_join_token(await make_token(house))
    port = house.server.join_port

    def fetch(ca_fingerprint: str) -> bytes:
        return fetch_pinned_ca("127.0.0.1", port, ca_fingerprint, timeout_s=DEADLINE_S)

    found = await asyncio.to_thread(fetch, token.ca_fingerprint)
    assert found == house.authority.certificate_pem()
    twin = Authority.create("lab", house.clock.now_s())
    with pytest.raises(Unauthenticated):
        await asyncio.to_thread(fetch, fingerprint(twin.certificate_pem()))


async def test_a_dead_address_is_said_to_be_dead() -> None:
    with pytest.raises(Unavailable):
        await asyncio.to_thread(fetch_pinned_ca, "127.0.0.1", 1, "0" * 64, timeout_s=DEADLINE_S)


async def test_a_server_with_the_right_name_but_another_ca_is_not_believed(
    house: RpcHouse, tmp_path: Path
) -> None:
    token = parse_join_token(await make_token(house))
    (tmp_path / "other").mkdir()
    async with rpc_house(tmp_path / "other") as impostor:
        with pytest.raises(Unauthenticated):
            await asyncio.to_thread(
                fetch_pinned_ca,
                "127.0.0.1",
                impostor.server.join_port,
                token.ca_fingerprint,
                timeout_s=DEADLINE_S,
            )


@pytest.mark.parametrize(
    ("name", "role"), [("alice", Role.USER), ("root", Role.ADMIN), ("gpu01", Role.NODE)]
)
async def test_renewal_keeps_name_and_role_whatever_the_request_says(
    house: RpcHouse, name: str, role: Role
) -> None:
    stub = IdentityServiceStub(house.channel_as(name, role))
    request = wire.RenewCertificateRequest(certificate_request=new_key_and_csr("root").request)
    answer = await stub.RenewCertificate(request, timeout=DEADLINE_S)
    renewed = parse_identity(answer.certificate)
    assert (renewed.name, renewed.role) == (name, role)


async def test_a_junk_request_for_renewal_is_refused(house: RpcHouse) -> None:
    stub = IdentityServiceStub(house.channel_as("alice", Role.USER))
    request = wire.RenewCertificateRequest(certificate_request=b"\xff" * 1000)
    call = stub.RenewCertificate(request, timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_stranger_cannot_fill_the_join_port_with_large_messages(house: RpcHouse) -> None:
    request = wire.JoinRequest(token="x" * 200_000)
    call = JoinServiceStub(house.join_channel()).Join(request, timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_joins_are_in_the_audit(house: RpcHouse) -> None:
    await join(house, await make_token(house))
    await refused(house, "nonsense")
    house.audit.close()
    text = house.audit_path.read_text()
    assert text.count("/dlq.v1.JoinService/Join") == 2
    assert '"decision":"UNAUTHENTICATED"' in text
