"""A certificate for a command line through the web page: honest ones, and all who would cheat."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

from dlq.v1 import identity_service_pb2 as identity_wire
from dlq.v1 import queue_service_pb2
from dlq.v1.identity_service_pb2_grpc import IdentityServiceStub
from dlq.v1.queue_service_pb2_grpc import QueueServiceStub
from dlq_common.errors import Unauthenticated
from dlq_common.identity.acting import ActsFor
from dlq_common.identity.pki import KeyAndRequest, Role, new_key_and_csr, parse_identity
from dlq_web.config import OpenIdConfig
from dlq_web.entrance.device import GRANTED_S, LONGEST_PLACE
from dlq_web.entrance.device_codes import INTERVAL_S, LASTS_S, MOST_OF_AN_ADDRESS, SILENT_S
from support.fake_clock import FakeClock
from support.oidc_issuer import OidcIssuer, openid_config
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house
from support.shared_web_house import ORIGIN, PAGE, SharedWebHouse, shared_web_house

pytestmark = pytest.mark.integration
DAY_S = 86_400.0
GRANT = "urn:ietf:params:oauth:grant-type:device_code"
OWN = {"origin": ORIGIN, "sec-fetch-site": "same-origin"}


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(
        tmp_path, web_may_act_for=("user", "operator"), web_certificates_s=DAY_S
    ) as house:
        yield house


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def issuer(clock: FakeClock) -> OidcIssuer:
    return OidcIssuer(clock)


@pytest.fixture
def config(tmp_path: Path) -> OpenIdConfig:
    return openid_config(tmp_path)


@pytest.fixture
async def web(
    house: RpcHouse, tmp_path: Path, issuer: OidcIssuer, clock: FakeClock, config: OpenIdConfig
) -> AsyncIterator[SharedWebHouse]:
    async with shared_web_house(
        house, tmp_path, clock=clock, openid=config, fetch=issuer.fetch
    ) as web:
        yield web


class CommandLine:
    """A command line that wants a certificate, on another host than the browser."""

    def __init__(self, web: SharedWebHouse, address: str = "198.51.100.9") -> None:
        self.http = web.browser(address)
        self.fresh: KeyAndRequest = new_key_and_csr("user")
        self.asked: dict[str, Any] = {}

    async def ask(self, place: str = "ada@login1") -> httpx.Response:
        form = {"certificate_request": self.fresh.request.decode(), "name": place}
        answer = await self.http.post("/device/code", data=form)
        self.asked = answer.json()
        return answer

    async def poll(self, grant: str = GRANT) -> dict[str, Any]:
        form = {"grant_type": grant, "device_code": self.asked["device_code"]}
        told: dict[str, Any] = (await self.http.post("/device/token", data=form)).json()
        return told

    @property
    def code(self) -> str:
        return str(self.asked["user_code"])


async def asking(web: SharedWebHouse) -> CommandLine:
    line = CommandLine(web)
    assert (await line.ask()).status_code == 200
    return line


async def signs_in(
    browser: httpx.AsyncClient, issuer: OidcIssuer, code: str, **claims: Any
) -> httpx.Response:
    """A user types a code, and signs in at the issuer."""
    page = (await browser.get("/device", params={"code": code}, headers=PAGE)).text
    found = re.search(r'href="(/enter/openid\?device=[^"]+)"', page)
    assert found is not None
    begun = await browser.get(found[1], headers=PAGE)
    address = begun.headers["location"]
    assert httpx.URL(address).params["prompt"] == "login"
    told = PAGE | {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    answered = issuer.authorize(address, **({"preferred_username": "alice"} | claims))
    return await browser.get("/enter/openid/back", params=answered, headers=told)


def grant_in(page: str) -> str:
    found = re.search(r'name="grant" value="([^"]+)"', page)
    assert found is not None, page
    return found[1]


async def presses(
    browser: httpx.AsyncClient, page: str, answer: str = "yes", **headers: str
) -> httpx.Response:
    form = {"grant": grant_in(page), "answer": answer}
    return await browser.post("/device/answer", data=form, headers=PAGE | OWN | headers)


def audited(house: RpcHouse) -> list[dict[str, str]]:
    house.audit.close()
    return [json.loads(line) for line in house.audit_path.read_text().splitlines()]


async def test_a_command_line_gets_a_certificate_of_its_user(
    web: SharedWebHouse, issuer: OidcIssuer, clock: FakeClock
) -> None:
    line = await asking(web)
    assert line.asked["verification_uri"] == f"{ORIGIN}/device"
    assert line.asked["verification_uri_complete"] == f"{ORIGIN}/device?code={line.code}"
    assert (await line.poll())["error"] == "authorization_pending"
    browser = web.browser()
    page = await signs_in(browser, issuer, line.code.lower().replace("-", " "))
    assert page.status_code == 200, page.text
    for words in ("alice", "ada@login1", "198.51.100.9", line.code, "just now", "refuse"):
        assert words in page.text, words
    done = await presses(browser, page.text)
    assert done.status_code == 200, done.text
    clock.advance(INTERVAL_S)
    told = await line.poll()
    certificate = told["certificate"].encode()
    who = parse_identity(certificate)
    assert (who.name, who.role, who.through, who.life_s) == ("alice", Role.USER, "portal", DAY_S)
    stub: Any = QueueServiceStub(web.house.channel(line.fresh.key, certificate))
    cluster = await stub.GetCluster(queue_service_pb2.GetClusterRequest(), timeout=DEADLINE_S)
    assert (cluster.caller, cluster.role) == ("alice", "user")
    assert (await line.poll())["error"] == "expired_token", "the code is good once"
    assert (await browser.get("/account", headers=PAGE)).status_code == 303, "no session began"
    (certified,) = [one for one in audited(web.house) if one["method"].endswith("/CertifyUser")]
    told_of = {name: certified[name] for name in ("who", "by", "object", "decision")}
    assert told_of == {"who": "alice", "by": "portal", "object": "ada@login1", "decision": "OK"}


async def certificate_of(web: SharedWebHouse, issuer: OidcIssuer) -> tuple[bytes, bytes]:
    line, browser = await asking(web), web.browser()
    await presses(browser, (await signs_in(browser, issuer, line.code)).text)
    return line.fresh.key, (await line.poll())["certificate"].encode()


async def end_of_a_read(house: RpcHouse, identity: tuple[bytes, bytes]) -> grpc.StatusCode:
    stub: Any = QueueServiceStub(house.channel(*identity))
    return await refusal(stub.GetCluster(queue_service_pb2.GetClusterRequest(), timeout=DEADLINE_S))


async def test_such_a_certificate_is_not_renewed(web: SharedWebHouse, issuer: OidcIssuer) -> None:
    stub: Any = IdentityServiceStub(web.house.channel(*await certificate_of(web, issuer)))
    request = identity_wire.RenewCertificateRequest(
        certificate_request=new_key_and_csr("alice").request
    )
    with pytest.raises(grpc.aio.AioRpcError, match="is not renewed"):
        await stub.RenewCertificate(request, timeout=DEADLINE_S)


async def test_such_a_certificate_makes_nothing_that_outlives_it(
    web: SharedWebHouse, issuer: OidcIssuer
) -> None:
    """A session makes tokens of up to a year."""
    key, certificate = await certificate_of(web, issuer)
    stub: Any = IdentityServiceStub(web.house.channel(key, certificate))
    with pytest.raises(grpc.aio.AioRpcError, match="makes no link"):
        await stub.CreateSignInLink(identity_wire.CreateSignInLinkRequest(), timeout=DEADLINE_S)
    shown = web.browser(certificate=parse_identity(certificate))
    told = await shown.post("/enter/certificate", headers=PAGE | OWN)
    assert told.status_code == 403
    assert "opens no session" in told.text


async def test_such_certificates_end_with_the_service(
    web: SharedWebHouse, issuer: OidcIssuer
) -> None:
    identity = await certificate_of(web, issuer)
    assert await end_of_a_read(web.house, identity) is grpc.StatusCode.OK
    del web.house.control.published.all_users["portal"]
    assert await end_of_a_read(web.house, identity) is grpc.StatusCode.UNAUTHENTICATED
    web.house.control.add_user("portal", "user", 1007)
    assert await end_of_a_read(web.house, identity) is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("granted", [{"web_may_act_for": ("operator",)}, {}])
async def test_such_certificates_end_with_the_grant(
    web: SharedWebHouse, issuer: OidcIssuer, tmp_path: Path, granted: dict[str, Any]
) -> None:
    """As after a restart of the master with another master.toml."""
    identity = await certificate_of(web, issuer)
    (tmp_path / "next").mkdir()
    life_s = DAY_S if granted else 0.0
    async with rpc_house(tmp_path / "next", web_certificates_s=life_s, **granted) as later:
        who = parse_identity(identity[1])
        with pytest.raises(Unauthenticated, match="count no more"):
            later.server.check_member(who)


async def test_nobody_but_a_service_certifies(house: RpcHouse) -> None:
    request = identity_wire.CertifyUserRequest(certificate_request=new_key_and_csr("x").request)
    for name, role in (("alice", Role.USER), ("root", Role.ADMIN), ("portal", Role.WEB)):
        stub: Any = IdentityServiceStub(house.channel_as(name, role))
        end = await refusal(stub.CertifyUser(request, timeout=DEADLINE_S))
        assert end is grpc.StatusCode.PERMISSION_DENIED, name
    stub = IdentityServiceStub(house.channel_as("portal", Role.WEB))
    for name in ("root", "prism", "portal", "gpu01"):
        acting = ActsFor(name).metadata()
        end = await refusal(stub.CertifyUser(request, timeout=DEADLINE_S, metadata=acting))
        assert end in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED), name


async def test_without_a_grant_of_the_master_nobody_gets_one(
    tmp_path: Path, issuer: OidcIssuer, clock: FakeClock, config: OpenIdConfig
) -> None:
    async with (
        rpc_house(tmp_path) as house,
        shared_web_house(house, tmp_path, clock=clock, openid=config, fetch=issuer.fetch) as web,
    ):
        line, browser = await asking(web), web.browser()
        page = await signs_in(browser, issuer, line.code)
        refused = await presses(browser, page.text)
        assert refused.status_code == 403
        assert "web_certificates" in refused.text
        told = await line.poll()
        assert told["error"] == "access_denied"
        assert "no certificates" in told["error_description"]


async def test_a_user_may_refuse(web: SharedWebHouse, issuer: OidcIssuer) -> None:
    line, browser = await asking(web), web.browser()
    page = await signs_in(browser, issuer, line.code)
    assert (await presses(browser, page.text, "no")).status_code == 200
    assert (await line.poll()) == {
        "error": "access_denied",
        "error_description": "alice has refused it in the browser",
    }


async def test_the_page_is_good_once_and_for_its_browser_alone(
    web: SharedWebHouse, issuer: OidcIssuer, clock: FakeClock
) -> None:
    line, browser, other = await asking(web), web.browser(), web.browser()
    page = await signs_in(browser, issuer, line.code)
    assert (await presses(other, page.text)).status_code == 401, "a stolen page"
    assert (await presses(browser, page.text)).status_code == 401, "which was used up by that"
    page = await signs_in(browser, issuer, line.code)
    evil = await presses(browser, page.text, origin="https://evil.example")
    assert evil.status_code == 403, "a page of another site presses no button"
    clock.advance(GRANTED_S)
    assert (await presses(browser, page.text)).status_code == 401, "too late"
    page = await signs_in(browser, issuer, line.code)
    again = await signs_in(other, issuer, line.code, preferred_username="bob")
    assert (await presses(browser, page.text)).status_code == 200
    assert (await presses(other, again.text)).status_code == 401, "it was answered already"
    assert "alice" in parse_identity((await line.poll())["certificate"].encode()).name


async def test_a_code_ends(web: SharedWebHouse, issuer: OidcIssuer, clock: FakeClock) -> None:
    line, browser = await asking(web), web.browser()
    clock.advance(LASTS_S)
    assert (await line.poll())["error"] == "expired_token"
    refused = await signs_in(browser, issuer, line.code)
    assert refused.status_code == 401
    assert "no command line waits" in refused.text


async def test_one_that_asks_too_often_is_told_to_slow_down(
    web: SharedWebHouse, clock: FakeClock
) -> None:
    line = await asking(web)
    told = []
    for wait_s in (0.0, 1.0, INTERVAL_S, 3 * INTERVAL_S):
        clock.advance(wait_s)
        told.append((await line.poll())["error"])
    pending, slower = "authorization_pending", "slow_down"
    assert told == [pending, slower, slower, pending]


async def test_one_that_goes_on_asking_too_often_spends_the_tries_of_its_address(
    web: SharedWebHouse,
) -> None:
    line = await asking(web)
    form = {"grant_type": GRANT, "device_code": line.asked["device_code"]}
    told = {(await line.http.post("/device/token", data=form)).status_code for _ in range(40)}
    assert told == {400, 429}


async def test_an_issuer_that_did_not_ask_anew_is_not_enough(
    web: SharedWebHouse, issuer: OidcIssuer, clock: FakeClock
) -> None:
    line, now_s = await asking(web), int(clock.now_s())
    refused = await signs_in(web.browser(), issuer, line.code, auth_time=now_s - 3_600)
    assert refused.status_code == 401
    assert "sign in anew" in refused.text
    fine = await signs_in(web.browser(), issuer, line.code, auth_time=now_s)
    assert fine.status_code == 200


@pytest.mark.parametrize("name", ["nobody", "root", "portal"])
async def test_only_users_for_whom_the_service_may_act_come_to_the_button(
    web: SharedWebHouse, issuer: OidcIssuer, name: str
) -> None:
    line = await asking(web)
    refused = await signs_in(web.browser(), issuer, line.code, preferred_username=name)
    assert refused.status_code in (401, 403)
    assert 'name="grant"' not in refused.text


async def test_a_session_is_not_enough(web: SharedWebHouse, issuer: OidcIssuer) -> None:
    """A stolen cookie makes no identity."""
    line, browser = await asking(web), await web.signed_in("alice")
    page = (await browser.get("/device", params={"code": line.code}, headers=PAGE)).text
    assert "Sign in to go on" in page
    form = {"grant": "x", "answer": "yes"}
    told = await browser.post("/device/answer", data=form, headers=PAGE | OWN)
    assert told.status_code == 401
    bridged = await browser.post("/api/dlq.v1.IdentityService/CertifyUser", json={}, headers=OWN)
    assert bridged.status_code in (403, 404)


async def test_of_two_buttons_at_once_one_counts(web: SharedWebHouse, issuer: OidcIssuer) -> None:
    line, mine, theirs = await asking(web), web.browser(), web.browser()
    first = await signs_in(mine, issuer, line.code)
    second = await signs_in(theirs, issuer, line.code, preferred_username="bob")
    ends = await asyncio.gather(presses(mine, first.text), presses(theirs, second.text))
    assert sorted(end.status_code for end in ends) == [200, 401]


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({}, 400),
        ({"certificate_request": "x", "name": "ada@login1"}, 400),
        ({"name": ""}, 400),
        ({f"field{number}": "x" for number in range(20)}, 400),
        ({"name": "a" * (LONGEST_PLACE + 1)}, 400),
        ({"name": "ada\x1b[2J"}, 400),
        ({"name": "ada\nConfirm"}, 400),
    ],
)
async def test_nonsense_is_refused(web: SharedWebHouse, form: dict[str, str], status: int) -> None:
    usual = {"certificate_request": new_key_and_csr("u").request.decode()} if form else {}
    answer = await web.browser().post("/device/code", data=usual | form)
    assert (answer.status_code, "trace" in answer.text) == (status, False)


async def test_a_hostile_name_is_only_text(web: SharedWebHouse, issuer: OidcIssuer) -> None:
    line, browser = CommandLine(web), web.browser()
    await line.ask("<b>root</b> confirmed")
    page = await signs_in(browser, issuer, line.code)
    assert "<b>root" not in page.text
    assert "&lt;b&gt;root" in page.text


async def test_guesses_are_limited_and_others_go_on(web: SharedWebHouse, clock: FakeClock) -> None:
    line, thief = await asking(web), CommandLine(web, "203.0.113.5")
    thief.asked = {"device_code": "guess", "user_code": "x"}
    ends = [await thief.poll() for _ in range(40)]
    assert ends[0]["error"] == "expired_token"
    assert ends[-1]["code"] == "resource_exhausted"
    for _ in range(40):
        clock.advance(2 * INTERVAL_S)
        if (await line.poll())["error"] == "expired_token":
            break
        assert (await line.poll())["error"] in ("slow_down", "authorization_pending")


async def test_an_address_takes_no_room_of_others_and_pushes_nobody_out(
    web: SharedWebHouse, clock: FakeClock
) -> None:
    mine, first, flood = await asking(web), *(CommandLine(web, "203.0.113.5") for _ in range(2))
    assert (await first.ask()).status_code == 200
    for _ in range(MOST_OF_AN_ADDRESS - 1):
        clock.advance(1.0)
        assert (await flood.ask()).status_code == 200
    clock.advance(1.0)
    refused = await flood.ask()
    assert refused.status_code == 429
    assert "wait for their users" in refused.json()["message"]
    assert int(refused.headers["retry-after"]) == LASTS_S - MOST_OF_AN_ADDRESS
    assert (await mine.poll())["error"] == "authorization_pending"
    assert (await first.poll())["error"] == "authorization_pending"
    assert (await asking(web)).code, "another address"


async def test_command_lines_that_have_gone_make_way(web: SharedWebHouse, clock: FakeClock) -> None:
    first, flood = (CommandLine(web, "203.0.113.5") for _ in range(2))
    await first.ask()
    for _ in range(MOST_OF_AN_ADDRESS - 1):
        clock.advance(1.0)
        assert (await flood.ask()).status_code == 200
    clock.advance(SILENT_S - 1.0)
    await first.poll()
    clock.advance(1.0)
    assert (await flood.ask()).status_code == 200
    assert (await first.poll())["error"] in ("authorization_pending", "slow_down")


async def test_without_an_issuer_there_is_no_such_way(house: RpcHouse, tmp_path: Path) -> None:
    async with shared_web_house(house, tmp_path) as web:
        assert (await web.browser().post("/device/code", data={})).status_code == 404
        assert (await web.browser().get("/device")).status_code == 404
