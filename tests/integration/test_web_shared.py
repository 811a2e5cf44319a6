"""One web server for all users: who gets in, as whom, and how it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from grpc import aio

from dlq.v1 import queue_service_pb2
from dlq_client.line.identity import certified
from dlq_common.identity.pki import Role, parse_identity
from dlq_web.door import shared_guard
from dlq_web.door.sessions import IDLE_S, LONGEST_S, MOST_OF_A_PERSON
from dlq_web.line.calls import CALLS_AT_ONCE, DialledMaster, MasterLine
from support.fake_clock import FakeClock
from support.rpc_house import DEADLINE_S, RpcHouse, rpc_house
from support.shared_web_house import (
    ORIGIN,
    PAGE,
    SharedWebHouse,
    cookie_of,
    csrf_of,
    enter,
    shared_web_house,
)

pytestmark = pytest.mark.integration
JSON = {"accept": "application/json"}
LIST = "/api/dlq.v1.JobService/ListJobs"


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


@pytest.fixture
async def web(house: RpcHouse, tmp_path: Path) -> AsyncIterator[SharedWebHouse]:
    async with shared_web_house(house, tmp_path) as web:
        yield web


async def test_each_browser_has_the_rights_of_its_own_user(web: SharedWebHouse) -> None:
    alice, bob = await web.signed_in("alice"), await web.signed_in("bob")
    spec = {"spec": {"command": ["/bin/true"], "resources": {"gpuCount": 1}}}
    made = await alice.post(
        "/api/dlq.v1.JobService/SubmitJob", json=spec, headers=await csrf_of(alice)
    )
    job = made.json()["job"]
    assert job["user"] == "alice"
    cancel = await bob.post(
        "/api/dlq.v1.JobService/CancelJob",
        json={"jobId": job["jobId"]},
        headers=await csrf_of(bob),
    )
    assert cancel.status_code == 404, "it is no business of bob's"
    assert "alice" in (await alice.get("/", headers=PAGE)).text
    web.house.audit.close()
    lines = [json.loads(line) for line in web.house.audit_path.read_text().splitlines()]
    told = {(line["method"].rpartition("/")[2], line["who"], line.get("by", "")) for line in lines}
    assert ("SubmitJob", "alice", "portal") in told
    assert ("CancelJob", "bob", "portal") in told
    assert ("UseSignInLink", "portal", "") in told


async def test_the_cookie_is_for_this_host_alone_and_no_script_reads_it(
    web: SharedWebHouse,
) -> None:
    answer = await enter(web.browser(), "alice", await web.link("alice"))
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-dlq=")
    parts = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert {"secure", "httponly", "samesite=lax", "path=/"} <= parts
    assert not any(part.startswith("domain") for part in parts)
    assert answer.headers["location"] == "/"


async def test_a_link_signs_in_once_and_for_its_user_alone(web: SharedWebHouse) -> None:
    link = await web.link("alice")
    looked = await web.browser().get(f"/enter?user=alice&link={link}", headers=PAGE)
    assert looked.status_code == 200, "looking uses nothing up"
    assert looked.headers["referrer-policy"] == "same-origin", "else its form has no origin"
    assert "Sign in as alice" in looked.text
    assert (await enter(web.browser(), "bob", link)).status_code == 401
    assert (await enter(web.browser(), "alice", link)).status_code == 303
    replayed = await enter(web.browser(), "alice", link)
    assert replayed.status_code == 401
    assert "dlq web --link" in replayed.text
    assert (await enter(web.browser(), "alice", "made up")).status_code == 401


async def test_a_link_is_too_old_after_five_minutes() -> None:
    from dlq_master.rpc.links import LIFETIME_S, MOST_OF_A_USER, SignInLinks

    clock = FakeClock()
    links = SignInLinks(clock)
    link = links.make("alice", "user")
    clock.advance(LIFETIME_S - 1)
    assert links.use("bob", link) is None
    fresh = links.make("alice", "user")
    clock.advance(1)
    assert links.use("alice", link) is None
    assert links.use("alice", fresh) is not None
    many = [links.make("alice", "user") for _ in range(MOST_OF_A_USER + 1)]
    assert [links.use("alice", one) is not None for one in many] == [False] + [True] * 5


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
        {"origin": ORIGIN, "sec-fetch-site": "cross-site"},
        {"origin": "http://dlq.example.org", "sec-fetch-site": "same-site"},
        {"origin": "null"},
    ],
)
async def test_another_page_signs_nobody_in(web: SharedWebHouse, headers: dict[str, str]) -> None:
    link = await web.link("alice")
    answer = await enter(web.browser(), "alice", link, **headers)
    assert answer.status_code == 403
    assert (await enter(web.browser(), "alice", link)).status_code == 303, "it is still good"


async def test_an_operator_gets_in_only_where_the_master_grants_it(
    web: SharedWebHouse, tmp_path: Path
) -> None:
    answer = await enter(web.browser(), "olga", await web.link("olga", Role.OPERATOR))
    assert answer.status_code == 403
    assert "may not act for the role operator" in answer.text
    assert "web_may_act_for" in answer.text
    (tmp_path / "second").mkdir()
    async with (
        rpc_house(tmp_path / "second", web_may_act_for=("user", "operator")) as house,
        shared_web_house(house, tmp_path / "second") as granted,
    ):
        olga = await granted.signed_in("olga", Role.OPERATOR)
        assert "operator" in (await olga.get("/", headers=PAGE)).text


async def test_nobody_without_a_session_sees_anything(web: SharedWebHouse) -> None:
    browser = web.browser()
    led = await browser.get("/jobs", headers=PAGE)
    assert (led.status_code, led.headers["location"]) == (303, "/sign-in?next=/jobs")
    assert (await browser.get("/sign-in", headers=PAGE)).status_code == 200
    for path in ("/v1/jobs", "/v1/events", "/account/tokens"):
        answer = await browser.get(path, headers=JSON)
        assert answer.status_code == 401, path
        assert "/sign-in" in answer.json()["hint"]
    ready = await browser.get("/readyz")
    assert ready.text == "ok\n"
    assert "max-age" in ready.headers["strict-transport-security"]


@pytest.mark.parametrize(
    "host", ["evil.example", "dlq.example.org:444", "dlq.example.org.evil", ""]
)
async def test_a_forged_host_gets_nothing(web: SharedWebHouse, host: str) -> None:
    browser = await web.signed_in("alice")
    assert (await browser.get("/", headers=PAGE | {"host": host})).status_code == 403


async def test_a_change_needs_the_token_of_the_page(web: SharedWebHouse) -> None:
    browser = await web.signed_in("alice")
    good = await csrf_of(browser)
    elsewhere = ({"origin": "https://evil.example"}, {"origin": "http://dlq.example.org"})
    for headers in ({}, {"x-dlq-csrf": "x"}, *(good | one for one in elsewhere)):
        answer = await browser.post(LIST, json={}, headers=JSON | headers)
        assert answer.status_code == 403
    assert (await browser.post(LIST, json={}, headers=JSON | good)).status_code == 200


async def test_a_removed_user_is_out_at_once_with_all_that_is_open(web: SharedWebHouse) -> None:
    alice, bob = await web.signed_in("alice"), await web.signed_in("bob")
    (session,) = [
        one for one in web.server.sessions.living() if one.person and one.person.name == "alice"
    ]
    del web.house.control.published.all_users["alice"]
    assert (await alice.get("/v1/jobs", headers=JSON)).status_code == 401
    assert session.over.is_set(), "its streams end"
    assert (await alice.get("/v1/jobs", headers=JSON)).status_code == 401
    assert (await bob.get("/v1/jobs", headers=JSON)).status_code == 200


async def test_a_quiet_page_of_a_removed_user_ends_too(web: SharedWebHouse) -> None:
    """Nobody clicks: the stream of events alone learns that its user is gone."""
    await web.signed_in("alice")
    (session,) = web.server.sessions.living()
    assert session.person is not None
    listening = asyncio.ensure_future(anext(session.person.feed.events()))
    bob = await web.signed_in("bob")

    async def stir() -> None:
        """Something happens, so that the master looks again at its watchers."""
        headers = await csrf_of(bob)
        spec = {"spec": {"command": ["/bin/true"], "resources": {"gpuCount": 1}}}
        while not session.over.is_set():
            await bob.post("/api/dlq.v1.JobService/SubmitJob", json=spec, headers=headers)
            await asyncio.sleep(0.05)

    del web.house.control.published.all_users["alice"]
    stirring = asyncio.create_task(stir())
    async with asyncio.timeout(60):
        await session.over.wait()
    await stirring
    listening.cancel()
    await asyncio.wait([listening])


async def test_operators_share_a_watch_and_a_removed_one_hears_nothing_more(
    tmp_path: Path,
) -> None:
    async with (
        rpc_house(tmp_path, web_may_act_for=("user", "operator")) as house,
        shared_web_house(house, tmp_path) as web,
    ):
        house.control.add_user("oskar", "operator", 1020)
        for name in ("olga", "oskar"):
            await web.signed_in(name, Role.OPERATOR)
        olga, oskar = [one for one in web.server.sessions.living() if one.person]
        assert olga.person is not None
        assert oskar.person is not None
        streams = [one.person.feed.events(0) for one in (olga, oskar) if one.person]
        heard = [asyncio.ensure_future(anext(one)) for one in streams]
        house.control.note("node_lost", node_id="gpu01")
        async with asyncio.timeout(DEADLINE_S):
            assert [(await one).event.kind for one in heard] == ["node_lost"] * 2
        del house.control.published.all_users["olga"]
        heard = [asyncio.ensure_future(anext(one)) for one in streams]
        house.control.note("node_back", node_id="gpu01")
        async with asyncio.timeout(DEADLINE_S):
            assert (await heard[1]).event.kind == "node_back"
        assert olga.over.is_set()
        assert not oskar.over.is_set()
        assert not heard[0].done() or isinstance(heard[0].exception(), StopAsyncIteration)
        heard[0].cancel()
        await asyncio.wait(heard)


async def test_a_role_that_was_taken_away_ends_the_session(web: SharedWebHouse) -> None:
    alice = await web.signed_in("alice")
    web.house.control.published.all_users["alice"] = web.house.control.add_user("alice", "admin")
    assert (await alice.get("/v1/jobs", headers=JSON)).status_code == 401


async def test_leaving_here_and_everywhere(web: SharedWebHouse) -> None:
    first, second, third = [await web.signed_in("alice") for _ in range(3)]
    bob = await web.signed_in("bob")
    stolen = cookie_of(first)
    assert (await first.post("/leave", headers=await csrf_of(first))).status_code == 200
    thief = web.browser()
    thief.cookies.set("__Host-dlq", stolen, domain="dlq.example.org")
    assert (await thief.get("/v1/jobs", headers=JSON)).status_code == 401
    assert (await second.post("/leave/everywhere", headers=await csrf_of(second))).is_success
    for browser in (second, third):
        assert (await browser.get("/v1/jobs", headers=JSON)).status_code == 401
    assert (await bob.get("/v1/jobs", headers=JSON)).status_code == 200


async def test_signing_in_anew_ends_the_session_that_the_browser_had(web: SharedWebHouse) -> None:
    browser = await web.signed_in("alice")
    before = cookie_of(browser)
    assert (await enter(browser, "bob", await web.link("bob"))).status_code == 303
    (session,) = web.server.sessions.living()
    assert session.person is not None
    assert session.person.name == "bob"
    assert cookie_of(browser) != before


async def test_a_session_ends_when_idle_and_in_any_case(house: RpcHouse, tmp_path: Path) -> None:
    clock = FakeClock()
    async with shared_web_house(house, tmp_path, clock=clock) as web:
        idle, busy = await web.signed_in("alice"), await web.signed_in("bob")
        for _ in range(int(LONGEST_S / (IDLE_S / 2)) - 1):
            clock.advance(IDLE_S / 2)
            assert (await busy.get("/v1/jobs", headers=JSON)).status_code == 200
        assert (await idle.get("/v1/jobs", headers=JSON)).status_code == 401
        clock.advance(IDLE_S / 2)
        web.server.sessions.sweep()
        assert web.server.sessions.living() == []


async def test_one_user_has_few_sessions_and_takes_none_of_others(web: SharedWebHouse) -> None:
    bob = await web.signed_in("bob")
    hers = [await web.signed_in("alice") for _ in range(MOST_OF_A_PERSON + 1)]
    assert (await hers[0].get("/v1/jobs", headers=JSON)).status_code == 401, "it has made way"
    assert (await hers[-1].get("/v1/jobs", headers=JSON)).status_code == 200
    assert (await bob.get("/v1/jobs", headers=JSON)).status_code == 200


async def test_an_address_tries_a_few_times_and_others_go_on(
    house: RpcHouse, tmp_path: Path
) -> None:
    clock = FakeClock()
    async with shared_web_house(house, tmp_path, clock=clock) as web:
        evil = web.browser("198.51.100.9")
        tries = int(shared_guard.TRIES_AT_ONCE)
        answers = [(await enter(evil, "alice", "guess")).status_code for _ in range(tries + 1)]
        assert answers == [401] * tries + [429]
        link = await web.link("alice")
        assert (await enter(web.browser(), "alice", link)).status_code == 303
        clock.advance(1 / shared_guard.TRIES_EACH_SECOND)
        assert (await enter(evil, "alice", "guess")).status_code == 401


async def test_guesses_of_many_addresses_lock_nobody_out(house: RpcHouse, tmp_path: Path) -> None:
    async with shared_web_house(house, tmp_path, clock=FakeClock()) as web:
        for number in range(100):
            evil = web.browser(f"198.51.100.{number}")
            assert (await enter(evil, "alice", "guess")).status_code == 401
        link = await web.link("alice")
        assert (await enter(web.browser("203.0.113.1"), "alice", link)).status_code == 303


async def test_behind_a_proxy_its_last_word_is_the_address(house: RpcHouse, tmp_path: Path) -> None:
    clock = FakeClock()
    async with shared_web_house(house, tmp_path, clock=clock, behind_proxy=True) as web:
        evil = web.browser("")
        for number in range(int(shared_guard.TRIES_AT_ONCE)):
            forged = {"x-forwarded-for": f"203.0.113.{number}, 198.51.100.9"}
            await enter(evil, "alice", "guess", **forged)
        forged = {"x-forwarded-for": "192.0.2.1, 198.51.100.9"}
        assert (await enter(evil, "alice", "guess", **forged)).status_code == 429
        honest = {"x-forwarded-for": "198.51.100.9, 192.0.2.1"}
        assert (await enter(evil, "alice", "guess", **honest)).status_code == 401


class SlowMaster:
    """A channel whose calls wait until they may go on."""

    def __init__(self, full_at: int) -> None:
        self.asked, self.full, self.go_on = 0, asyncio.Event(), asyncio.Event()
        self._full_at = full_at

    def present(self) -> DialledMaster:
        return DialledMaster("slow:7320", cast(aio.Channel, self))

    def unary_unary(self, *_: Any) -> Any:
        return self._ask

    async def _ask(self, _request: Any, **_: Any) -> Any:
        self.asked += 1
        if self.asked == self._full_at:
            self.full.set()
        await self.go_on.wait()
        return queue_service_pb2.ListQueuesResponse()


async def test_one_user_has_few_calls_on_their_way(
    web: SharedWebHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    alices = [await web.signed_in("alice"), await web.signed_in("alice")]
    master = SlowMaster(CALLS_AT_ONCE)
    with monkeypatch.context() as patched:
        for session in web.server.sessions.living():
            assert session.person is not None
            patched.setattr(session.person.line, "_channel", master)
        bob = await web.signed_in("bob")
        many = [
            asyncio.create_task(alices[number % 2].get("/v1/queues", headers=JSON))
            for number in range(2 * CALLS_AT_ONCE)
        ]
        await asyncio.wait_for(master.full.wait(), 30.0)
        assert (await bob.get("/v1/queues", headers=JSON)).status_code == 200
        assert master.asked == CALLS_AT_ONCE, "in all browsers of alice's together"
        master.go_on.set()
        assert {(await one).status_code for one in many} == {200}
        assert master.asked == 2 * CALLS_AT_ONCE


async def test_a_certificate_signs_in_and_the_session_is_bound_to_it(web: SharedWebHouse) -> None:
    _, certificate = web.house.certificate("alice", Role.USER)
    _, other = web.house.certificate("alice", Role.USER)
    proven = parse_identity(certificate)
    browser = web.browser(certificate=proven)
    told = {"origin": ORIGIN, "sec-fetch-site": "same-origin"}
    assert (await browser.post("/enter/certificate", headers=told)).status_code == 303
    assert (await browser.get("/v1/jobs", headers=JSON)).status_code == 200
    for thief in (web.browser(), web.browser(certificate=parse_identity(other))):
        thief.cookies.set("__Host-dlq", cookie_of(browser), domain="dlq.example.org")
        assert (await thief.get("/v1/jobs", headers=JSON)).status_code == 401
    without = await web.browser().post("/enter/certificate", headers=told)
    assert without.status_code == 401


async def test_a_certificate_of_an_earlier_owner_of_the_name_signs_nobody_in(
    web: SharedWebHouse,
) -> None:
    old = web.house.certificate("alice", Role.USER, now_s=web.house.clock.now_s() - 86_400.0)
    web.house.control.add_user("alice", "user")  # given again
    browser = web.browser(certificate=parse_identity(old[1]))
    assert (await browser.post("/enter/certificate", headers={"origin": ORIGIN})).status_code == 401


async def test_a_master_that_is_away_is_told_and_ends_no_session(web: SharedWebHouse) -> None:
    alice = await web.signed_in("alice")
    await web.house.server.stop(0.0)
    assert (await alice.get("/v1/jobs", headers=JSON)).status_code == 503
    assert len(web.server.sessions.living()) == 1
    assert (await web.browser().get("/readyz")).status_code == 503


async def test_lines_to_the_master_go_with_their_sessions(web: SharedWebHouse) -> None:
    alice = await web.signed_in("alice")
    (session,) = web.server.sessions.living()
    assert session.person is not None
    await alice.post("/leave", headers=await csrf_of(alice))
    await web.server.close()
    assert session.person.feed.closed


async def test_an_open_session_goes_on_with_the_services_renewed_certificate(
    web: SharedWebHouse,
) -> None:
    browser, service = await web.signed_in("alice"), web.server._service
    key, certificate = web.house.certificate("portal", Role.WEB)
    ca, address = web.house.authority.certificate_pem(), service.identity.address
    service.identity = certified(key, certificate, ca, address)
    assert (await browser.get("/v1/jobs", headers=JSON)).status_code == 200
    (session,) = web.server.sessions.living()
    assert session.person is not None
    assert isinstance(session.person.line, MasterLine)
    assert session.person.line.identity is service.identity
