"""Revocation: worthless at the next call, and at once for streams that are open."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from dlq.v1 import admin_service_pb2 as admin
from dlq.v1 import agent_service_pb2 as agents
from dlq.v1 import identity_service_pb2 as identity_wire
from dlq.v1 import job_service_pb2 as wire
from dlq.v1.admin_service_pb2_grpc import AdminServiceStub
from dlq.v1.agent_service_pb2_grpc import AgentServiceStub
from dlq.v1.identity_service_pb2_grpc import IdentityServiceStub
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.acting import ActsFor
from dlq_common.identity.pki import Role, new_key_and_csr, parse_identity
from support.rpc_house import DEADLINE_S, RpcHouse, ended, refusal, rpc_house

pytestmark = pytest.mark.integration
OK, OUT = grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


def revoked(house: RpcHouse, **told: str) -> Any:
    stub: Any = AdminServiceStub(house.channel_as("root", Role.ADMIN))
    named = "-".join(told.values())
    request = admin.RevokeCertificatesRequest(request_id=f"revoke-{named}"[:64], **told)
    return stub.RevokeCertificates(request, timeout=DEADLINE_S)


def listing(channel: aio.Channel, *metadata: tuple[str, str]) -> Any:
    stub: Any = JobServiceStub(channel)
    return stub.ListJobs(wire.ListJobsRequest(page_size=1), timeout=DEADLINE_S, metadata=metadata)


async def watching(channel: aio.Channel, *metadata: tuple[str, str]) -> Any:
    """A watch of everything that has begun. Nothing happens on it."""
    submitter: Any = JobServiceStub(channel)
    request = wire.SubmitJobRequest(request_id="one")
    request.spec.command.append("/bin/true")
    request.spec.resources.gpu_count = 1
    await submitter.SubmitJob(request, timeout=DEADLINE_S, metadata=metadata)
    watch = submitter.WatchEvents(wire.WatchEventsRequest(), timeout=DEADLINE_S, metadata=metadata)
    await watch.read()
    return watch


async def test_one_certificate_and_no_other_of_its_holder(house: RpcHouse) -> None:
    key, certificate = house.certificate("alice", Role.USER)
    lost, other = house.channel(key, certificate), house.channel_as("alice", Role.USER)
    serial = parse_identity(certificate).serial
    stream = await watching(lost)
    await revoked(house, serial=serial)
    assert await ended(stream) is OUT
    assert await refusal(listing(lost)) is OUT
    assert await refusal(listing(other)) is OK


async def test_all_of_a_user_and_the_next_one_is_good(house: RpcHouse) -> None:
    mine = house.channel_as("alice", Role.USER)
    stream, others = await watching(mine), await watching(house.channel_as("bob", Role.USER))
    done = await revoked(house, name="alice", reason="laptop")
    assert (done.revocation.kind, done.revocation.name, done.cut_count) == ("user", "alice", 1)
    assert await ended(stream) is OUT
    assert await refusal(listing(mine)) is OUT
    assert not others.done(), "another user's stream was cut"
    others.cancel()
    good_from_s = house.control.published.all_revocations["user:alice"].good_from_s
    anew = house.channel(*house.certificate("alice", Role.USER, now_s=good_from_s))
    assert await refusal(listing(anew)) is OK


async def test_nobody_renews_with_a_revoked_certificate(house: RpcHouse) -> None:
    stub: Any = IdentityServiceStub(house.channel_as("alice", Role.USER))
    await revoked(house, name="alice")
    asked = new_key_and_csr("alice").request
    request = identity_wire.RenewCertificateRequest(certificate_request=asked)
    assert await refusal(stub.RenewCertificate(request, timeout=DEADLINE_S)) is OUT


async def test_a_certificate_of_the_very_second_of_a_revocation_is_good(house: RpcHouse) -> None:
    await revoked(house, node_id="gpu01")
    row = house.control.published.all_revocations["node:gpu01"]
    key, certificate = house.certificate("gpu02", Role.NODE)
    stub: Any = IdentityServiceStub(house.channel(key, certificate))
    request = identity_wire.RenewCertificateRequest(
        certificate_request=new_key_and_csr("gpu02").request
    )
    house.control.published.all_revocations["node:gpu02"] = row
    assert await refusal(stub.RenewCertificate(request, timeout=DEADLINE_S)) is OUT
    del house.control.published.all_revocations["node:gpu02"]
    fresh = await stub.RenewCertificate(request, timeout=DEADLINE_S)
    house.control.published.all_revocations["node:gpu02"] = row
    assert parse_identity(fresh.certificate).issued_s >= row.good_from_s - 1.0


async def test_the_line_of_an_agent_is_cut(house: RpcHouse) -> None:
    stub: Any = AgentServiceStub(house.channel_as("gpu01", Role.NODE))
    session = stub.Session()
    facts = agents.NodeFacts(hostname="h", boot_id="boot-1", agent_version="1", cpu_count=4)
    await session.write(agents.SessionRequest(hello=agents.Hello(facts=facts)))
    assert (await session.read()).HasField("welcome")
    done = await revoked(house, node_id="gpu01")
    assert done.cut_count == 1
    assert await ended(session) is OUT


async def test_a_web_server_and_the_sessions_of_its_users(house: RpcHouse) -> None:
    portal = house.channel_as("portal", Role.WEB)
    session = ActsFor("alice", "user", house.clock.now_s(), shown="abc123")
    stream = await watching(portal, *session.metadata())
    await revoked(house, serial="abc123")  # with which she signed in at the browser
    assert await ended(stream) is OUT
    assert await refusal(listing(portal, *session.metadata())) is OUT
    other = ActsFor("bob", "user", house.clock.now_s())
    assert await refusal(listing(portal, *other.metadata())) is OK
    await revoked(house, name="portal")
    assert await refusal(listing(portal, *other.metadata())) is OUT


async def test_tokens_of_programs_end_with_their_user(house: RpcHouse) -> None:
    portal = house.channel_as("portal", Role.WEB)
    token = ActsFor("alice", "user", house.clock.now_s() - 1000.0)
    assert await refusal(listing(portal, *token.metadata())) is OK
    await revoked(house, name="alice")
    assert await refusal(listing(portal, *token.metadata())) is OUT


@pytest.mark.parametrize("role", [Role.USER, Role.OPERATOR, Role.INFERENCE, Role.NOTIFIER])
async def test_only_admins_revoke(house: RpcHouse, role: Role) -> None:
    name = {"user": "alice", "operator": "olga", "inference": "prism", "notifier": "nina"}[role]
    stub: Any = AdminServiceStub(house.channel_as(name, role))
    request = admin.RevokeCertificatesRequest(request_id="r", name="bob")
    call = stub.RevokeCertificates(request, timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.PERMISSION_DENIED
    assert not house.control.published.all_revocations


async def test_one_thing_is_revoked_at_a_time(house: RpcHouse) -> None:
    for told in ({}, {"name": "alice", "node_id": "gpu01"}):
        assert await refusal(revoked(house, **told)) is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_audit_names_what_was_revoked(house: RpcHouse) -> None:
    await revoked(house, serial="abc")
    house.audit.close()
    lines = [json.loads(line) for line in house.audit_path.read_text().splitlines()]
    assert [(line["who"], line["object"], line["decision"]) for line in lines] == [
        ("root", "abc", "OK")
    ]
