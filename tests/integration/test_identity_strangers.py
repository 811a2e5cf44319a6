"""Every method, in every role, with a credential that is worth nothing any more, or not yet.

It is tried at the three doors: of a master that leads, of one that stands by, and of the relay. A
failure names the credential, the role and the methods. Join is among the methods, with tokens.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import grpc
import httpx
import pytest

from dlq.v1 import admin_service_pb2 as admin
from dlq.v1 import identity_service_pb2 as identity_wire
from dlq.v1.admin_service_pb2_grpc import AdminServiceStub
from dlq.v1.identity_service_pb2_grpc import JoinServiceStub
from dlq_client.inside.relay_line import LineLost
from dlq_common.clock import SteadyClock
from dlq_common.fence import LeaderFence
from dlq_common.identity.files import StoredIdentity
from dlq_common.identity.pki import Authority, Role, new_key_and_csr, parse_identity
from dlq_master.leader.lease import MasterPart
from dlq_master.model.ids import NodeId
from dlq_master.rpc.calls.auth import Door
from dlq_master.rpc.standing_by import StandbyFacts, StandbyServer
from integration.test_identity_matrix import DAY_S, ENDLESS, REFUSED, end_of, outcomes
from support.fake_clock import FakeClock
from support.relay_house import RelayHouse
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house
from support.shared_web_house import csrf_of, shared_web_house
from support.wire_methods import Method, every_method

pytestmark = pytest.mark.integration
JOIN = "/dlq.v1.JoinService/"
LONG = pytest.mark.long("integration/test_identity_matrix.py")

Pems = tuple[bytes | None, bytes | None]


class Doors(NamedTuple):
    """A master that leads, and one that stands by and has read the same rows."""

    house: RpcHouse
    standby: StandbyServer

    def ports(self) -> dict[str, int]:
        return {"the leader": self.house.server.api_port, "the standby": self.standby.api_port}

    def known(self, role: Role, name: str) -> tuple[bytes, bytes]:
        """Somebody of this role whose certificate is good until now."""
        if role is Role.NODE:
            self.house.control.add_node(name)
        else:
            self.house.control.add_user(name, role.value, 7000)
        return self.house.certificate(name, role)


@pytest.fixture
async def doors(tmp_path: Path) -> AsyncIterator[Doors]:
    async with rpc_house(tmp_path) as house:
        part = MasterPart(
            "head2:7320", False, 60.0, "", LeaderFence("71", 2, 9), 3.5, 815, 0.25, "", ()
        )
        door = Door("lab", lambda: house.control.published, SteadyClock(), ())
        door.signs = house.authority
        standby = StandbyServer(
            "127.0.0.1:0", "127.0.0.1:0", house.authority, SteadyClock(), lambda: "",
            StandbyFacts(door, lambda: part),
        )  # fmt: skip
        await standby.start()
        yield Doors(house, standby)
        await standby.stop()


# --- credentials that are worth nothing ----------------------------------------------------------


async def none(_doors: Doors, _role: Role) -> Pems:
    return None, None


async def of_another_ca(doors: Doors, role: Role) -> Pems:
    doors.known(role, "foreign")
    twin = Authority.create("lab", doors.house.clock.now_s())
    return doors.house.certificate("foreign", role, authority=twin)


async def expired(doors: Doors, role: Role) -> Pems:
    doors.known(role, "late")
    return doors.house.certificate("late", role, now_s=doors.house.clock.now_s() - 400 * DAY_S)


async def not_yet_valid(doors: Doors, role: Role) -> Pems:
    """Our CA makes none: its certificates begin long ago, for hosts whose clocks are behind."""
    doors.known(role, "early")
    with begins_in_a_day():
        return doors.house.certificate("early", role)


async def never_known(doors: Doors, role: Role) -> Pems:
    return doors.house.certificate("nobody", role)


async def removed(doors: Doors, role: Role) -> Pems:
    pems = doors.known(role, "gone")
    rows = doors.house.control.published
    rows.all_nodes.pop(NodeId("gone"), None)
    rows.all_users.pop("gone", None)
    return pems


async def of_an_earlier_holder_of_the_name(doors: Doors, role: Role) -> Pems:
    doors.known(role, "again")
    doors.known(role, "again")  # the name is given a second time
    return doors.house.certificate("again", role, now_s=doors.house.clock.now_s() - DAY_S / 2)


async def of_a_role_that_was_taken_away(doors: Doors, role: Role) -> Pems:
    pems = doors.known(role, "former")
    rows = doors.house.control.published
    if role is Role.NODE:
        rows.all_nodes.pop(NodeId("former"))
    doors.house.control.add_user("former", "user" if role is not Role.USER else "inference", 7001)
    return pems


async def with_a_revoked_serial(doors: Doors, role: Role) -> Pems:
    pems = doors.known(role, "lost")
    await revoke(doors.house, serial=parse_identity(pems[1]).serial)
    return pems


async def with_a_revoked_name(doors: Doors, role: Role) -> Pems:
    pems = doors.known(role, "stolen")
    await revoke(doors.house, **{"node_id" if role is Role.NODE else "name": "stolen"})
    return pems


async def of_the_former_ca(doors: Doors, role: Role) -> Pems:
    """Signed before the change of the CA, which is finished by now."""
    pems = doors.known(role, "before")
    authority: Any = doors.house.authority
    authority.begin(doors.house.clock.now_s())
    authority.finish()
    return pems


def begins_in_a_day() -> AbstractContextManager[object]:
    """Whatever is signed meanwhile."""
    return patch("dlq_common.identity.pki.GOOD_FROM_S", SteadyClock().now_s() + DAY_S)


async def revoke(house: RpcHouse, **told: str) -> None:
    stub: Any = AdminServiceStub(house.channel_as("root", Role.ADMIN))
    asked = admin.RevokeCertificatesRequest(request_id=f"r-{''.join(told.values())}"[:64], **told)
    await stub.RevokeCertificates(asked, timeout=DEADLINE_S)


BAD: tuple[Callable[[Doors, Role], Awaitable[Pems]], ...] = (
    none, of_another_ca, expired, not_yet_valid, never_known, removed,
    of_an_earlier_holder_of_the_name, of_a_role_that_was_taken_away,
    with_a_revoked_serial, with_a_revoked_name,
    of_the_former_ca,  # the last one: it changes the CA of the house
)  # fmt: skip
# Guests need a grant (test_identity_matrix.py, test_guests.py); nobody dials as the other two.
OTHERS = [one for one in Role if one not in (Role.ADMIN, Role.GUEST, Role.MASTER, Role.EXCHANGE)]
ROLES = [Role.ADMIN, *OTHERS]
METHODS_OF_API = [method for method in every_method() if not method.path.startswith(JOIN)]
SOME = {
    "/dlq.v1.AdminService/GetLeader", "/dlq.v1.AdminService/SetUser",
    "/dlq.v1.AgentService/AnnounceLeave", "/dlq.v1.IdentityService/RenewCertificate",
    "/dlq.v1.JobService/SubmitJob", "/dlq.v1.JobService/WatchEvents",
}  # fmt: skip


@LONG
@pytest.mark.parametrize("role", ROLES)
async def test_no_door_lets_in_what_is_worth_nothing(doors: Doors, role: Role) -> None:
    asked, unexpected = await tried(doors, role, METHODS_OF_API)
    assert unexpected == {}
    assert asked == len(BAD) * 2 * len(METHODS_OF_API)


@pytest.mark.parametrize("role", [Role.ADMIN, pytest.param(Role.NODE, marks=LONG)])
async def test_no_door_lets_it_in_for_some_methods(doors: Doors, role: Role) -> None:
    some = [one for one in METHODS_OF_API if one.path in SOME]
    assert len(some) == len(SOME)
    assert (await tried(doors, role, some))[1] == {}


async def tried(
    doors: Doors, role: Role, methods: Sequence[Method]
) -> tuple[int, dict[str, list[str]]]:
    """How many calls were made with all that is bad, and which were allowed."""
    unexpected: dict[str, list[str]] = {}
    asked = 0
    for bad in BAD:
        pems = await bad(doors, role)
        for door, port in doors.ports().items():
            channel = doors.house.dial(port, *pems)
            ends = {method.path: await end_of(channel, method) for method in methods}
            asked += len(ends)
            allowed = [path for path, code in ends.items() if code not in REFUSED]
            if allowed:
                unexpected[f"{bad.__name__}, {role.value}, at {door}"] = allowed
    return asked, unexpected


async def test_the_same_roles_are_let_in_with_what_is_good(doors: Doors) -> None:
    """Else the refusals above would say nothing."""
    some = [one for one in METHODS_OF_API if one.path in SOME - ENDLESS]
    for role in (Role.ADMIN, *OTHERS):
        pems = doors.known(role, f"good-{role.value}")
        channel = doors.house.dial(doors.house.server.api_port, *pems)
        ends = [await end_of(channel, method) for method in some]
        assert any(code not in REFUSED for code in ends), role
    pems = doors.known(Role.ADMIN, "chief")
    all_ends = await outcomes(doors.house.dial(doors.standby.api_port, *pems))
    let_in = [path for path, code in all_ends.items() if code not in REFUSED]
    assert let_in == ["/dlq.v1.AdminService/GetLeader"]


# --- tokens ---------------------------------------------------------------------------------------


async def test_no_door_takes_a_join_token_that_is_used_expired_or_revoked(doors: Doors) -> None:
    house = doors.house
    stub: Any = AdminServiceStub(house.channel_as("root", Role.ADMIN))

    async def token(name: str) -> Any:
        return await stub.CreateJoinToken(
            admin.CreateJoinTokenRequest(request_id=name), timeout=DEADLINE_S
        )

    def joining(port: int, secret: str) -> Any:
        made = new_key_and_csr("gpu99").request
        request = identity_wire.JoinRequest(token=secret, certificate_request=made)
        line: Any = JoinServiceStub(house.dial(port, None, None))
        return line.Join(request, timeout=DEADLINE_S)

    used, over, recalled = await token("used"), await token("over"), await token("recalled")
    assert await refusal(joining(house.server.join_port, used.secret)) is grpc.StatusCode.OK
    rows = house.control.published.all_tokens
    late_s = house.clock.now_s() - 1.0
    rows[over.token.token_id] = replace(rows[over.token.token_id], expire_time_s=late_s)
    await stub.RevokeJoinToken(
        admin.RevokeJoinTokenRequest(request_id="x", token_id=recalled.token.token_id),
        timeout=DEADLINE_S,
    )
    bad = {"used": used, "expired": over, "revoked": recalled}
    ports = (house.server.join_port, doors.standby.join_port)
    unexpected = [
        (name, port)
        for name, one in bad.items()
        for port in ports
        if await refusal(joining(port, one.secret)) not in REFUSED
    ]
    assert unexpected == []
    fresh = await token("fresh")
    assert await refusal(joining(doors.standby.join_port, fresh.secret)) in REFUSED


async def test_no_method_of_the_web_takes_a_token_of_a_program_that_is_over(
    tmp_path: Path,
) -> None:
    """Expired, revoked, of a removed user, of a user whose certificates were revoked, and one that
    was never given.
    """
    clock = FakeClock(SteadyClock().now_s())
    async with rpc_house(tmp_path) as house, shared_web_house(house, tmp_path, clock=clock) as web:

        async def token(user: str, days: int = 30) -> tuple[httpx.AsyncClient, str]:
            browser = await web.signed_in(user)
            told = {"label": "ci", "scope": "all", "days": days}
            made = await browser.post("/account/tokens", json=told, headers=await csrf_of(browser))
            assert made.status_code == 201, made.text
            return browser, str(made.json()["token"])

        browser, recalled = await token("alice")
        (known,) = (await browser.get("/account/tokens")).json()["tokens"]
        gone = await browser.delete(
            f"/account/tokens/{known['token_id']}", headers=await csrf_of(browser)
        )
        assert gone.status_code < 300, gone.text
        _, short = await token("alice", days=1)
        _, removed_ = await token("bob")
        house.control.published.all_users.pop("bob")
        house.control.add_user("carol", "user", 1008)
        _, cut = await token("carol")
        await revoke(house, name="carol")
        clock.advance(2 * DAY_S)
        bad = {
            "revoked": recalled,
            "expired": short,
            "of a removed user": removed_,
            "of a revoked user": cut,
            "never given": recalled[:-4] + "aaaa",
        }
        unexpected, asked = [], 0
        for name, one in bad.items():
            for method in every_method():
                asked += 1  # many tries of one address, or with one token, are refused unread
                clock.advance(60.0)
                client = web.browser(f"10.0.{asked // 250}.{asked % 250 + 1}")
                client.headers["authorization"] = f"Bearer {one}"
                answer = await client.post(f"/api{method.path}", json={})
                if answer.status_code != 401:
                    unexpected.append((name, method.path, answer.status_code))
        assert unexpected == []
        _, good = await token("alice")
        client = web.browser("203.0.113.9")
        client.headers["authorization"] = f"Bearer {good}"
        assert (await client.get("/v1/jobs")).status_code == 200, "else the refusals say nothing"


# --- the relay ------------------------------------------------------------------------------------


@pytest.fixture
def relay() -> Iterator[RelayHouse]:
    with RelayHouse().up() as house:
        yield house


def test_the_relay_joins_nobody_whose_credential_is_worth_nothing(relay: RelayHouse) -> None:
    """As the caller, with words of a pair that a master has told of."""
    now_s = SteadyClock().now_s()

    def person(authority: Authority, at_s: float, name: str = "alice") -> StoredIdentity:
        made = new_key_and_csr(name)
        signed = authority.sign_user(made.request, name, Role.USER, at_s)
        return StoredIdentity(made.key, signed, relay.authority.certificate_pem())

    good, former = relay.person(), relay.person()
    with begins_in_a_day():
        early = relay.person()
    bad = {
        "of another CA": person(Authority.create("lab", now_s), now_s),
        "expired": person(relay.authority, now_s - 400 * DAY_S),
        "not yet valid": early,
        "another certificate of the caller": relay.person(),
        "another user": relay.person("mallory"),
        "a node": relay.node("alice"),
    }
    unexpected = []
    for name, one in bad.items():
        tickets = relay.expect(good)  # for the certificate with which the caller asked the master
        try:
            relay.called(tickets, one).result(60.0)
        except (LineLost, OSError):
            continue
        unexpected.append(name)
    other = Authority.create("lab", now_s)
    relay.show(other, other.certificate_pem())
    try:
        relay.called(relay.expect(former), former).result(60.0)
    except (LineLost, OSError):
        pass
    else:
        unexpected.append("of the former CA")
    assert unexpected == []
