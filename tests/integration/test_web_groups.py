"""Groups of the issuer: the master decides what they give, and it ends with the session."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from dlq.v1 import identity_service_pb2 as identity_wire
from dlq.v1 import queue_service_pb2, team_service_pb2
from dlq.v1.identity_service_pb2_grpc import IdentityServiceStub
from dlq.v1.queue_service_pb2_grpc import QueueServiceStub
from dlq.v1.team_service_pb2_grpc import TeamServiceStub
from dlq_common.identity.acting import ActsFor
from dlq_common.identity.pki import Role, new_key_and_csr
from dlq_master.rpc.calls.roles import GroupGrants
from dlq_master.store.tables.tenants import Team
from dlq_web.entrance.ways import GROUPS_S, LEAST_GROUPS_S
from support.fake_clock import FakeClock
from support.oidc_issuer import LIFETIME_S, OidcIssuer, openid_config
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house
from support.shared_web_house import PAGE, SharedWebHouse, csrf_of, shared_web_house

pytestmark = pytest.mark.integration
GRANTS = GroupGrants({"gpu-ops": "operator"}, {"lab-vision": "vision", "lab-new": "absent"})
BOTH = ("user", "operator")
POLICY = "/api/dlq.v1.AdminService/GetPolicy"  # for operators
OPS = ActsFor("alice", groups=("gpu-ops",))


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(
        tmp_path, web_may_act_for=BOTH, web_certificates_s=3_600.0, group_grants=GRANTS
    ) as house:
        house.control.published.all_teams["vision"] = Team("vision", 0.0)
        yield house


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def issuer(clock: FakeClock) -> OidcIssuer:
    return OidcIssuer(clock)


@pytest.fixture
async def web(
    house: RpcHouse, tmp_path: Path, issuer: OidcIssuer, clock: FakeClock
) -> AsyncIterator[SharedWebHouse]:
    told = ("gpu-ops", "lab-vision", "lab-new", "unknown-there")
    config = openid_config(tmp_path, told_groups=told)
    async with shared_web_house(
        house, tmp_path, clock=clock, openid=config, fetch=issuer.fetch
    ) as web:
        yield web


async def signed_in(web: SharedWebHouse, issuer: OidcIssuer, *groups: str) -> httpx.AsyncClient:
    browser = web.browser()
    begun = await browser.get("/enter/openid", headers=PAGE)
    told = PAGE | {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    address = begun.headers["location"]
    params = issuer.authorize(address, preferred_username="alice", groups=list(groups))
    answer = await browser.get("/enter/openid/back", params=params, headers=told)
    assert answer.status_code == 303, answer.text
    return browser


async def asks(browser: httpx.AsyncClient, path: str) -> int:
    return (await browser.post(path, json={}, headers=await csrf_of(browser))).status_code


async def test_a_group_gives_a_role_for_this_session_alone(
    web: SharedWebHouse, issuer: OidcIssuer
) -> None:
    raised = await signed_in(web, issuer, "gpu-ops", "staff")
    assert await asks(raised, POLICY) == 200
    page = (await raised.get("/account", headers=PAGE)).text
    assert "alice, with the role operator" in page
    assert "gpu-ops" in page
    assert "staff" not in page, "the master hears of configured groups alone"
    assert await asks(await signed_in(web, issuer, "staff"), POLICY) == 403
    assert await asks(await web.signed_in("alice"), POLICY) == 403, "by a link"
    assert await asks(raised, POLICY) == 200


async def test_the_audit_names_the_user_the_service_and_the_group(
    web: SharedWebHouse, issuer: OidcIssuer
) -> None:
    raised = await signed_in(web, issuer, "gpu-ops")
    changed = await raised.post(
        "/api/dlq.v1.AdminService/FenceNode",
        json={"requestId": "r1", "nodeId": "gpu01"},
        headers=await csrf_of(raised),
    )
    assert changed.status_code != 403, changed.text
    web.house.audit.close()
    lines = [json.loads(line) for line in web.house.audit_path.read_text().splitlines()]
    (line,) = [one for one in lines if one["method"].endswith("/FenceNode")]
    told = {name: line[name] for name in ("who", "role", "by", "groups")}
    assert told == {"who": "alice", "role": "operator", "by": "portal", "groups": "gpu-ops"}


LASTS_S = min(GROUPS_S, max(LEAST_GROUPS_S, LIFETIME_S))  # the issuer's tokens say so


async def test_what_groups_give_ends_early_with_the_session(
    web: SharedWebHouse, issuer: OidcIssuer, clock: FakeClock
) -> None:
    raised, usual = await signed_in(web, issuer, "gpu-ops"), await signed_in(web, issuer)
    for _ in range(4):
        assert (await raised.get("/account", headers=PAGE)).status_code == 200
        clock.advance(LASTS_S / 4)
        await usual.get("/account", headers=PAGE)
    last = await raised.get("/account", headers=PAGE)
    assert last.status_code == 303, "the issuer is asked anew, although somebody was there"
    assert (await usual.get("/account", headers=PAGE)).status_code == 200


async def test_a_logout_at_the_issuer_ends_it_at_once(
    web: SharedWebHouse, issuer: OidcIssuer
) -> None:
    raised = await signed_in(web, issuer, "gpu-ops")
    told = {"logout_token": issuer.logout_token("u-17")}
    assert (await web.browser().post("/enter/openid/logout", data=told)).status_code == 200
    assert (await raised.get("/account", headers=PAGE)).status_code == 303


async def test_a_token_has_nothing_of_what_groups_give(
    web: SharedWebHouse, issuer: OidcIssuer
) -> None:
    raised = await signed_in(web, issuer, "gpu-ops", "lab-vision")
    body = {"label": "ci", "scope": "all", "days": 1}
    made = await raised.post("/account/tokens", json=body, headers=await csrf_of(raised))
    program = {"authorization": f"Bearer {made.json()['token']}"}
    outside = web.browser()
    assert (await outside.get("/v1/jobs", headers=program)).status_code == 200
    assert (await outside.post(POLICY, json={}, headers=program)).status_code == 403
    assert "vision" not in (await outside.get("/v1/teams", headers=program)).text
    assert "vision" in (await raised.get("/v1/teams")).text


# --- the master's door ---


async def end_of(call: Any, request: Any, user: ActsFor) -> grpc.StatusCode:
    return await refusal(call(request, timeout=DEADLINE_S, metadata=user.metadata()))


def get_cluster(house: RpcHouse, name: str = "portal", role: Role = Role.WEB) -> Any:
    stub: Any = QueueServiceStub(house.channel_as(name, role))
    return stub.GetCluster


async def test_the_service_can_give_itself_nothing(house: RpcHouse) -> None:
    """Groups that are not configured, and roles for which it may not act, give nothing."""
    ask, refused = queue_service_pb2.GetClusterRequest(), set()
    for groups in (("admins",), ("operator",), ("lab-vision",), ()):
        acting = ActsFor("alice", groups=groups).metadata()
        told = await get_cluster(house)(ask, timeout=DEADLINE_S, metadata=acting)
        assert told.role == "user", groups
    refused.add(
        await end_of(get_cluster(house), ask, ActsFor("alice", "admin", groups=("gpu-ops",)))
    )
    for name in ("prism", "nina", "portal", "gpu01", "nobody"):
        refused.add(await end_of(get_cluster(house), ask, ActsFor(name, groups=("gpu-ops",))))
    for name, role in (("bob", Role.USER), ("root", Role.ADMIN), ("gpu01", Role.NODE)):
        refused.add(await end_of(get_cluster(house, name, role), ask, OPS))
    assert refused <= {grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED}


async def test_a_role_of_a_group_gives_no_certificate(house: RpcHouse) -> None:
    stub: Any = IdentityServiceStub(house.channel_as("portal", Role.WEB))
    request = identity_wire.CertifyUserRequest(certificate_request=new_key_and_csr("x").request)
    end = await end_of(stub.CertifyUser, request, OPS)
    assert end is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize(
    ("grants", "end"),
    [
        (GRANTS, grpc.StatusCode.OK),
        (GroupGrants(), grpc.StatusCode.UNAUTHENTICATED),
        (GroupGrants({"gpu-ops": "user"}), grpc.StatusCode.UNAUTHENTICATED),
    ],
)
async def test_after_a_restart_of_the_master_its_new_configuration_counts(
    tmp_path: Path, grants: GroupGrants, end: grpc.StatusCode
) -> None:
    async with rpc_house(tmp_path, web_may_act_for=BOTH, group_grants=grants) as later:
        session = OPS._replace(role="operator")
        ask = queue_service_pb2.GetClusterRequest()
        assert await end_of(get_cluster(later), ask, session) is end


async def test_a_given_team_is_seen_and_another_is_not(house: RpcHouse) -> None:
    house.control.published.all_teams["nlp"] = Team("nlp", 0.0)
    stub: Any = TeamServiceStub(house.channel_as("portal", Role.WEB))
    told = await stub.ListTeams(
        team_service_pb2.ListTeamsRequest(), timeout=DEADLINE_S,
        metadata=ActsFor("alice", groups=("lab-vision",)).metadata(),
    )  # fmt: skip
    assert [team.name for team in told.teams] == ["vision"]
