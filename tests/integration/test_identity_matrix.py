"""Every method, called by everybody who might try: nobody gets in who should not.

The methods are read from the descriptors, so that a new one is in this test before it is anywhere
else. All of it over real mutual TLS.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool
from google.protobuf.message_factory import GetMessageClass
from grpc import aio

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.acting import ActsFor
from dlq_common.identity.pki import Authority, Role, new_key_and_csr
from dlq_master.rpc.calls.roles import GroupGrants
from dlq_master.rpc.methods import JOIN_SERVICE, METHODS
from dlq_master.store.batch import User
from dlq_master.store.tables.tenants import (
    GivenGrant,
    GrantLimits,
    GrantState,
    GuestAccount,
    through_word,
)
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house
from support.wire_methods import Method, every_method

pytestmark = pytest.mark.integration

# A call that was let in, with an empty request, ends in one of these.
LET_IN = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,  # this master has no hooks
}
REFUSED = {
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNAVAILABLE,  # no handshake
}
PEOPLE = {
    "alice": Role.USER,
    "olga": Role.OPERATOR,
    "root": Role.ADMIN,
    "prism": Role.INFERENCE,
    "nina": Role.NOTIFIER,
    "portal": Role.WEB,
}
WATCH_EVENTS = "/dlq.v1.JobService/WatchEvents"
PROFILE_MASTER = "/dlq.v1.AdminService/ProfileMaster"  # half a minute, if nothing else is asked
ENDLESS = {WATCH_EVENTS, "/grpc.health.v1.Health/Watch"}
DAY_S = 86_400.0
BROKEN = 20  # times in a row, that is no chance any more


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


Metadata = tuple[tuple[str, str], ...]


def call(channel: aio.Channel, method: Method, metadata: Metadata = ()) -> Any:
    """The method with an empty request, whatever kind of method it is. One that would take its time
    is asked for less than none of it.
    """
    pool = descriptor_pool.Default()
    request: Any = GetMessageClass(pool.FindMessageTypeByName(method.input_type))()
    if method.path == PROFILE_MASTER:
        request.sample_duration.seconds = -1
    answer = GetMessageClass(pool.FindMessageTypeByName(method.output_type))
    shapes: dict[tuple[bool, bool], Callable[..., Any]] = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }
    multi = shapes[method.client_streams, method.server_streams](
        method.path,
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=answer.FromString,
    )
    sent = iter([request]) if method.client_streams else request
    return multi(sent, timeout=DEADLINE_S, metadata=metadata)


async def outcomes(channel: aio.Channel, metadata: Metadata = ()) -> dict[str, grpc.StatusCode]:
    """How each method that the API could serve ends on this line."""
    methods = [
        method for method in every_method() if not method.path.startswith(f"/{JOIN_SERVICE}/")
    ]
    return {method.path: await end_of(channel, method, metadata) for method in methods}


async def end_of(channel: aio.Channel, method: Method, metadata: Metadata = ()) -> grpc.StatusCode:
    """How it ends. A stream that is refused while it is still being written to may break instead of
    being told so, the more often the busier the machine is: then it is asked again."""
    if method.path in ENDLESS:
        return await beginning_of(call(channel, method, metadata))
    code = await refusal(call(channel, method, metadata))
    for _ in range(BROKEN if method.client_streams else 0):
        if code in LET_IN | REFUSED:
            break
        code = await refusal(call(channel, method, metadata))
    return code


async def beginning_of(stream: Any) -> grpc.StatusCode:
    """OK once something has come."""
    try:
        if await stream.read() is not aio.EOF:
            stream.cancel()
            return grpc.StatusCode.OK
        code: grpc.StatusCode = await stream.code()
    except aio.AioRpcError as error:
        return error.code()
    return code


async def submit(channel: aio.Channel) -> None:
    """A job of one's own, so that there is an event to watch."""
    request = wire.SubmitJobRequest(request_id="r")
    request.spec.command.append("/bin/true")
    request.spec.resources.gpu_count = 1
    await JobServiceStub(channel).SubmitJob(request, timeout=DEADLINE_S)


@pytest.mark.parametrize(("name", "role"), [*PEOPLE.items(), ("gpu01", Role.NODE)])
async def test_a_role_reaches_exactly_the_methods_of_the_table(
    house: RpcHouse, name: str, role: Role
) -> None:
    channel = house.channel_as(name, role)
    if role in METHODS[WATCH_EVENTS].roles:
        await submit(channel if role is not Role.NOTIFIER else house.channel_as("alice", Role.USER))
    ends = await outcomes(channel)
    assert len(ends) >= 28
    let_in = {path for path, code in ends.items() if code in LET_IN}
    refused = {path for path, code in ends.items() if code is grpc.StatusCode.PERMISSION_DENIED}
    own = {path: rule for path, rule in METHODS.items() if not rule.by_service}
    assert let_in == {path for path, rule in own.items() if role in rule.roles}
    assert let_in | refused == ends.keys(), "every end is one or the other"


def a_guest(house: RpcHouse, **told: Any) -> aio.Channel:
    """Somebody of another organisation, under a grant of this cluster."""
    now_s = house.clock.now_s()
    account = GuestAccount("guest1", 2001, 2001)
    limits = GrantLimits(4, ("default",))
    grant = GivenGrant(
        "aa01", "orga", "PEM", "orga", (account,), limits, now_s, now_s + DAY_S, "root", 0
    )._replace(**told)
    published = house.control.published
    published.all_grants["aa01"] = grant
    published.all_users["ann@orga"] = User(
        "ann@orga", "guest", 2001, 2001, (), now_s - 1.0, "ann@orga#1", "guest1", "aa01", "ann"
    )
    made = new_key_and_csr("ann")
    word = through_word("aa01")
    certificate = house.authority.sign_user_of(
        word, made.request, "ann@orga", Role.GUEST, now_s, 3_600.0
    )
    return house.channel(made.key, certificate)


async def test_a_guest_reaches_exactly_the_methods_for_jobs_of_their_own(house: RpcHouse) -> None:
    channel = a_guest(house)
    await submit(channel)
    ends = await outcomes(channel)
    assert let_in(ends) == {path for path, rule in METHODS.items() if Role.GUEST in rule.roles}
    assert let_in(ends) | {p for p, code in ends.items() if code in REFUSED} == ends.keys()
    services = {path.rsplit("/", 1)[0] for path in let_in(ends)}
    assert services == {
        *("/dlq.v1.JobService", "/dlq.v1.ForecastService", "/dlq.v1.UsageService"),
        "/dlq.v1.QueueService",
    }, "no node, no team, no rule, no certificate, nothing of operators"


@pytest.mark.parametrize(
    "told", [{"state": GrantState.REVOKED}, {"state": GrantState.REPLACED}, {"until_s": 1.0}]
)
async def test_under_a_grant_that_is_over_a_guest_reaches_nothing(
    house: RpcHouse, told: dict[str, Any]
) -> None:
    ends = await outcomes(a_guest(house, **told))
    assert set(ends.values()) == {grpc.StatusCode.UNAUTHENTICATED}


async def test_a_certificate_of_a_guest_that_names_no_grant_is_worthless(house: RpcHouse) -> None:
    a_guest(house)
    ends = await outcomes(house.channel_as("ann@orga", Role.GUEST))
    assert set(ends.values()) == {grpc.StatusCode.UNAUTHENTICATED}


async def test_no_web_server_acts_for_a_guest(house: RpcHouse) -> None:
    a_guest(house)
    ends = await outcomes(house.channel_as("portal", Role.WEB), ActsFor("ann@orga").metadata())
    assert set(ends.values()) == {grpc.StatusCode.INVALID_ARGUMENT}, "it is no user's name"


async def test_nobody_gets_in_without_a_certificate(house: RpcHouse) -> None:
    ends = await outcomes(house.channel(None, None))
    assert set(ends.values()) == {grpc.StatusCode.UNAVAILABLE}, "the handshake itself fails"


async def test_nobody_gets_in_with_a_certificate_of_another_ca(house: RpcHouse) -> None:
    twin = Authority.create("lab", house.clock.now_s())
    stranger = house.certificate("root", Role.ADMIN, authority=twin)
    ends = await outcomes(house.channel(*stranger))
    assert set(ends.values()) == {grpc.StatusCode.UNAVAILABLE}


async def test_nobody_gets_in_with_an_expired_certificate(house: RpcHouse) -> None:
    expired = house.certificate("root", Role.ADMIN, now_s=house.clock.now_s() - 31 * DAY_S)
    ends = await outcomes(house.channel(*expired))
    assert set(ends.values()) == {grpc.StatusCode.UNAVAILABLE}


async def everybody_is_refused(house: RpcHouse, name: str, role: Role) -> None:
    ends = await outcomes(house.channel_as(name, role))
    assert set(ends.values()) == {grpc.StatusCode.UNAUTHENTICATED}


async def test_a_removed_user_is_refused_although_the_certificate_is_good(
    house: RpcHouse,
) -> None:
    channel = house.channel_as("root", Role.ADMIN)
    del house.control.published.all_users["root"]
    ends = await outcomes(channel)
    assert set(ends.values()) == {grpc.StatusCode.UNAUTHENTICATED}


async def test_a_forgotten_node_is_refused_although_the_certificate_is_good(
    house: RpcHouse,
) -> None:
    house.control.published.all_nodes.clear()
    await everybody_is_refused(house, "gpu01", Role.NODE)


async def test_a_role_that_was_taken_away_is_gone_at_once(house: RpcHouse) -> None:
    house.control.add_user("root", "user")
    await everybody_is_refused(house, "root", Role.ADMIN)


async def test_a_node_cannot_pass_for_a_user_of_its_name(house: RpcHouse) -> None:
    house.control.add_node("alice")
    channel = house.channel_as("alice", Role.NODE)
    ends = await outcomes(channel)
    assert ends["/dlq.v1.JobService/ListJobs"] is grpc.StatusCode.PERMISSION_DENIED


async def test_a_certificate_of_an_earlier_user_of_the_name_is_worthless(
    house: RpcHouse,
) -> None:
    old = house.certificate("alice", Role.USER, now_s=house.clock.now_s() - DAY_S)
    house.control.add_user("alice", "user")  # given again
    ends = await outcomes(house.channel(*old))
    assert set(ends.values()) == {grpc.StatusCode.UNAUTHENTICATED}


async def test_every_denied_call_is_in_the_audit(house: RpcHouse) -> None:
    ends = await outcomes(house.channel_as("gpu01", Role.NODE))
    denied = {path for path, code in ends.items() if code is grpc.StatusCode.PERMISSION_DENIED}
    house.audit.close()
    text = house.audit_path.read_text()
    assert denied
    assert all(f'"method":"{path}"' in text for path in denied)


# --- a web server, which acts for users ---


def let_in(ends: dict[str, grpc.StatusCode]) -> set[str]:
    return {path for path, code in ends.items() if code in LET_IN}


@pytest.mark.parametrize(("name", "role"), [("alice", Role.USER), ("olga", Role.OPERATOR)])
async def test_for_a_user_a_web_server_reaches_exactly_the_methods_of_that_user(
    tmp_path: Path, name: str, role: Role
) -> None:
    async with rpc_house(
        tmp_path, web_may_act_for=("user", "operator"), web_certificates_s=DAY_S
    ) as house:
        await submit(house.channel_as(name, role))
        channel = house.channel_as("portal", Role.WEB)
        ends = await outcomes(channel, ActsFor(name).metadata())
    its_own = {path for path, rule in METHODS.items() if role in rule.roles and not rule.in_person}
    assert let_in(ends) == its_own
    assert "/dlq.v1.IdentityService/RenewCertificate" not in its_own
    assert let_in(ends) | {p for p, code in ends.items() if code in REFUSED} == ends.keys()


async def test_with_a_group_it_reaches_exactly_the_methods_of_the_role_of_the_group(
    tmp_path: Path,
) -> None:
    grants = GroupGrants({"gpu-ops": "operator"})
    async with rpc_house(
        tmp_path, web_may_act_for=("user", "operator"), group_grants=grants
    ) as house:
        await submit(house.channel_as("alice", Role.USER))
        raised = ActsFor("alice", groups=("gpu-ops",)).metadata()
        ends = await outcomes(house.channel_as("portal", Role.WEB), raised)
    of_operators = {path: rule for path, rule in METHODS.items() if Role.OPERATOR in rule.roles}
    its_own = {p for p, rule in of_operators.items() if not rule.in_person and not rule.by_service}
    assert let_in(ends) == its_own, "and no certificate"


@pytest.mark.parametrize("name", ["olga", "root", "prism", "nina", "portal", "gpu01", "nobody"])
async def test_a_web_server_acts_for_users_alone_unless_more_is_granted(
    house: RpcHouse, name: str
) -> None:
    ends = await outcomes(house.channel_as("portal", Role.WEB), ActsFor(name).metadata())
    assert not let_in(ends)


@pytest.mark.parametrize(
    ("name", "role"),
    [("bob", Role.USER), ("root", Role.ADMIN), ("prism", Role.INFERENCE), ("gpu01", Role.NODE)],
)
async def test_nobody_but_a_web_server_acts_for_anybody(
    house: RpcHouse, name: str, role: Role
) -> None:
    ends = await outcomes(house.channel_as(name, role), ActsFor("alice").metadata())
    assert not let_in(ends)


async def test_a_web_server_that_was_removed_acts_for_nobody(house: RpcHouse) -> None:
    channel = house.channel_as("portal", Role.WEB)
    del house.control.published.all_users["portal"]
    ends = await outcomes(channel, ActsFor("alice").metadata())
    assert not let_in(ends)


@pytest.mark.parametrize(
    "metadata",
    [
        (("dlq-acts-for", "alice"), ("dlq-acts-for", "bob")),
        (("dlq-acts-as", "user"),),
        (("dlq-acts-since", "12.5"),),
        (("dlq-acts-for", "alice"), ("dlq-acts-since", "nan")),
        (("dlq-acts-for", "alice"), ("dlq-acts-since", "today")),
        (("dlq-acts-for", "../alice"),),
        (("dlq-acts-for", ""),),
        (("dlq-acts-for", "alice"), ("dlq-acts-as", "emperor")),
        (("dlq-acts-for", "alice"), ("dlq-acts-as", "admin")),
        (("dlq-acts-for", "gpu01"), ("dlq-acts-as", "node")),
    ],
)
async def test_words_that_name_no_single_user_let_nobody_in(
    house: RpcHouse, metadata: Metadata
) -> None:
    method = next(one for one in every_method() if one.path == "/dlq.v1.JobService/ListJobs")
    code = await end_of(house.channel_as("portal", Role.WEB), method, metadata)
    assert code in REFUSED | {grpc.StatusCode.INVALID_ARGUMENT}
