"""A web server acts for a user: it has the user's rights as they are now, and the audit says so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from dlq.v1 import identity_service_pb2 as identity_wire
from dlq.v1 import job_service_pb2 as wire
from dlq.v1 import queue_service_pb2
from dlq.v1.identity_service_pb2_grpc import IdentityServiceStub
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq.v1.queue_service_pb2_grpc import QueueServiceStub
from dlq_common.identity.acting import ActsFor
from dlq_common.identity.pki import Role, new_key_and_csr
from dlq_master.rpc.calls.limits import STREAMS_OF_A_PERSON
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house

pytestmark = pytest.mark.integration
DAY_S = 86_400.0


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


@pytest.fixture
def portal(house: RpcHouse) -> aio.Channel:
    return house.channel_as("portal", Role.WEB)


def asks(portal: aio.Channel, user: ActsFor) -> Any:
    """ListJobs for somebody."""
    stub: Any = JobServiceStub(portal)
    request = wire.ListJobsRequest(page_size=1)
    return stub.ListJobs(request, timeout=DEADLINE_S, metadata=user.metadata())


async def submitted(portal: aio.Channel, user: ActsFor, request_id: str = "r") -> Any:
    request = wire.SubmitJobRequest(request_id=request_id)
    request.spec.command.append("/bin/true")
    request.spec.resources.gpu_count = 1
    stub: Any = JobServiceStub(portal)
    return (await stub.SubmitJob(request, timeout=DEADLINE_S, metadata=user.metadata())).job


def audited(house: RpcHouse) -> list[dict[str, str]]:
    house.audit.close()
    return [json.loads(line) for line in house.audit_path.read_text().splitlines()]


async def test_the_master_sees_the_user_and_says_since_when(
    house: RpcHouse, portal: aio.Channel
) -> None:
    stub: Any = QueueServiceStub(portal)
    told = await stub.GetCluster(
        queue_service_pb2.GetClusterRequest(),
        timeout=DEADLINE_S,
        metadata=ActsFor("alice").metadata(),
    )
    assert (told.caller, told.role) == ("alice", "user")
    assert told.master_time.seconds > 0


async def test_a_job_is_the_users_and_a_repeat_is_one_job(
    house: RpcHouse, portal: aio.Channel
) -> None:
    first = await submitted(portal, ActsFor("alice"))
    again = await submitted(portal, ActsFor("alice"))
    others = await submitted(portal, ActsFor("bob"))
    assert first.user == "alice"
    assert again.job_id == first.job_id
    assert (others.user, others.job_id == first.job_id) == ("bob", False)


async def test_the_audit_names_the_user_and_the_service(
    house: RpcHouse, portal: aio.Channel
) -> None:
    await submitted(portal, ActsFor("alice"))
    await refusal(asks(portal, ActsFor("root")))
    lines = audited(house)
    assert [(line["who"], line["role"], line["by"], line["decision"]) for line in lines] == [
        ("alice", "user", "portal", "OK"),
        ("root", "admin", "portal", "PERMISSION_DENIED"),
    ]


async def test_a_user_without_a_service_is_audited_as_before(house: RpcHouse) -> None:
    stub: Any = JobServiceStub(house.channel_as("alice", Role.USER))
    await refusal(stub.CancelJob(wire.CancelJobRequest(job_id="9"), timeout=DEADLINE_S))
    assert all("by" not in line for line in audited(house))


async def test_a_removed_user_is_refused_at_the_next_call(
    house: RpcHouse, portal: aio.Channel
) -> None:
    assert await refusal(asks(portal, ActsFor("alice"))) is grpc.StatusCode.OK
    del house.control.published.all_users["alice"]
    assert await refusal(asks(portal, ActsFor("alice"))) is grpc.StatusCode.UNAUTHENTICATED


async def test_a_session_of_an_earlier_owner_of_the_name_is_worthless(
    house: RpcHouse, portal: aio.Channel
) -> None:
    since_s = house.clock.now_s() - DAY_S
    session = ActsFor("alice", "user", since_s)
    assert await refusal(asks(portal, session)) is grpc.StatusCode.OK
    house.control.add_user("alice", "user")  # given again
    assert await refusal(asks(portal, session)) is grpc.StatusCode.UNAUTHENTICATED


async def test_a_session_lives_for_longer_than_a_certificate(
    house: RpcHouse, portal: aio.Channel
) -> None:
    token = ActsFor("alice", "user", house.clock.now_s() - 300 * DAY_S)
    assert await refusal(asks(portal, token)) is grpc.StatusCode.OK


async def test_a_role_that_has_changed_ends_the_session(
    house: RpcHouse, portal: aio.Channel
) -> None:
    session = ActsFor("alice", "user", house.clock.now_s())
    assert await refusal(asks(portal, session)) is grpc.StatusCode.OK
    house.control.published.all_users["alice"] = house.control.add_user("carol", "operator")
    assert await refusal(asks(portal, session)) is not grpc.StatusCode.OK


async def test_an_open_stream_ends_with_its_user(house: RpcHouse, portal: aio.Channel) -> None:
    await submitted(portal, ActsFor("alice"))
    stub: Any = JobServiceStub(portal)
    watch = stub.WatchEvents(
        wire.WatchEventsRequest(), timeout=DEADLINE_S, metadata=ActsFor("alice").metadata()
    )
    await watch.read()
    del house.control.published.all_users["alice"]
    await submitted(portal, ActsFor("bob"))  # something happens
    assert await watch.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_streams_count_for_the_user_and_not_for_the_service(
    house: RpcHouse, portal: aio.Channel
) -> None:
    """One user of the page opens all that one user may have; another has all of theirs."""
    await submitted(portal, ActsFor("alice"))
    await submitted(portal, ActsFor("bob"))
    stub: Any = JobServiceStub(portal)

    def watch(name: str) -> Any:
        return stub.WatchEvents(
            wire.WatchEventsRequest(), timeout=DEADLINE_S, metadata=ActsFor(name).metadata()
        )

    hers = [watch("alice") for _ in range(STREAMS_OF_A_PERSON)]
    await asyncio.gather(*(one.read() for one in hers))
    assert await refusal(watch("alice")) is grpc.StatusCode.RESOURCE_EXHAUSTED
    his = watch("bob")
    assert await his.read() is not aio.EOF
    for one in [*hers, his]:
        one.cancel()


async def test_no_certificate_is_made_for_a_user_of_the_page(
    house: RpcHouse, portal: aio.Channel
) -> None:
    stub: Any = IdentityServiceStub(portal)
    request = identity_wire.RenewCertificateRequest(
        certificate_request=new_key_and_csr("alice").request
    )
    call = stub.RenewCertificate(request, timeout=DEADLINE_S, metadata=ActsFor("alice").metadata())
    assert await refusal(call) is grpc.StatusCode.PERMISSION_DENIED
    own = await stub.RenewCertificate(request, timeout=DEADLINE_S)
    assert own.certificate
