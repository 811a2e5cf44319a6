"""Tokens of programs at the web server for all: scope, end, revocation, and whose they are."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from dlq.v1 import admin_service_pb2 as admin
from dlq.v1.admin_service_pb2_grpc import AdminServiceStub
from dlq_common.identity.acting import ActsFor
from dlq_common.identity.pki import Role, parse_identity
from dlq_web.door.bearers import STARTS_AT_ONCE
from dlq_web.door.persons import Persons
from dlq_web.door.sessions import MOST_OF_A_PERSON
from dlq_web.door.shared_guard import TRIES_AT_ONCE
from dlq_web.door.tokens import MOST_OF_A_USER, TOKEN_FILE
from dlq_web.line.methods import METHODS
from dlq_web.line.scope import Scope
from support.fake_clock import FakeClock
from support.rpc_house import DEADLINE_S, RpcHouse, rpc_house
from support.shared_web_house import ORIGIN, SharedWebHouse, csrf_of, shared_web_house

pytestmark = pytest.mark.integration
DAY_S = 86_400.0
SPEC = {"spec": {"command": ["/bin/true"], "resources": {"gpuCount": 1}}}
SUBMIT, CANCEL = "/api/dlq.v1.JobService/SubmitJob", "/api/dlq.v1.JobService/CancelJob"


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


@pytest.fixture
async def web(house: RpcHouse, tmp_path: Path) -> AsyncIterator[SharedWebHouse]:
    async with shared_web_house(house, tmp_path) as web:
        yield web


async def made(browser: httpx.AsyncClient, **asked: Any) -> str:
    """A new token of this browser's user."""
    told = {"label": "ci", "scope": "read", "days": 30} | asked
    answer = await browser.post("/account/tokens", json=told, headers=await csrf_of(browser))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


def program(web: SharedWebHouse, token: str) -> httpx.AsyncClient:
    client = web.browser("203.0.113.4")
    client.headers["authorization"] = f"Bearer {token}"
    return client


async def test_a_scope_bounds_what_a_program_may(web: SharedWebHouse) -> None:
    alice = await web.signed_in("alice")
    jobs: list[str] = []
    for scope, submits, cancels in (
        ("read", 403, 403),
        ("submit", 200, 403),
        ("all", 200, 200),
    ):
        client = program(web, await made(alice, scope=scope))
        assert (await client.get("/v1/jobs")).status_code == 200
        answer = await client.post(SUBMIT, json=SPEC)
        assert answer.status_code == submits, scope
        if submits == 200:
            assert answer.json()["job"]["user"] == "alice"
            jobs.append(answer.json()["job"]["jobId"])
        told = await client.post(CANCEL, json={"jobId": jobs[0] if jobs else "1"})
        assert told.status_code == cancels, scope
        if cancels == 403:
            assert "this token may" in told.json()["message"]


def test_the_scope_to_read_holds_no_method_that_changes_something() -> None:
    from dlq_master.rpc.methods import METHODS as TABLE

    readable = {path for path in METHODS if Scope.READ.allows(path)}
    assert not [path for path in readable if TABLE[path].changes]
    assert len(readable) > 15
    more = {path for path in METHODS if Scope.SUBMIT.allows(path)} - readable
    assert {path.rpartition("/")[2] for path in more} == {"SubmitJob", "SubmitJobs"}
    assert all(Scope.ALL.allows(path) for path in METHODS)


async def test_a_program_makes_no_further_token_and_no_page_session(web: SharedWebHouse) -> None:
    client = program(web, await made(await web.signed_in("alice"), scope="all"))
    told = {"label": "more", "scope": "all", "days": 365}
    assert (await client.post("/account/tokens", json=told)).status_code == 403


@pytest.mark.parametrize("scope", list(Scope))
async def test_a_program_signs_no_browser_out(web: SharedWebHouse, scope: Scope) -> None:
    alice = await web.signed_in("alice")
    client = program(web, await made(alice, scope=scope))
    assert (await client.post("/leave/everywhere")).status_code == 403
    assert (await alice.get("/v1/jobs")).status_code == 200


async def test_strangers_at_the_same_address_lock_no_program_out(web: SharedWebHouse) -> None:
    client = program(web, await made(await web.signed_in("alice")))
    stranger = program(web, "dlqt_made_up")
    tries = int(TRIES_AT_ONCE) + 2
    refused = [(await stranger.get("/v1/jobs")).status_code for _ in range(tries)]
    assert (refused[0], refused[-1]) == (401, 429)
    assert (await client.get("/v1/jobs")).status_code == 200


async def test_a_worthless_token_costs_the_master_little(
    web: SharedWebHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = program(web, await made(await web.signed_in("alice")))
    del web.house.control.published.all_users["alice"]
    asked: list[ActsFor] = []
    admit = Persons.admit

    async def counted(persons: Persons, user: ActsFor) -> Any:
        asked.append(user)
        return await admit(persons, user)

    monkeypatch.setattr(Persons, "admit", counted)
    answers = {(await client.get("/v1/jobs")).status_code for _ in range(int(STARTS_AT_ONCE) * 2)}
    assert answers == {401, 429}
    assert len(asked) < STARTS_AT_ONCE + 5


async def test_a_program_takes_no_browser_s_place(web: SharedWebHouse) -> None:
    browsers = [await web.signed_in("alice") for _ in range(MOST_OF_A_PERSON)]
    client = program(web, await made(browsers[-1]))
    assert (await client.get("/v1/jobs")).status_code == 200
    for browser in browsers:
        assert (await browser.get("/v1/jobs")).status_code == 200


async def test_tokens_are_listed_and_revoked_by_their_owner_alone(web: SharedWebHouse) -> None:
    alice, bob = await web.signed_in("alice"), await web.signed_in("bob")
    client = program(web, await made(alice))
    assert (await client.get("/v1/jobs")).status_code == 200
    (listed,) = (await alice.get("/account/tokens")).json()["tokens"]
    assert (listed["label"], listed["scope"]) == ("ci", "read")
    assert (await bob.get("/account/tokens")).json() == {"tokens": []}
    path = f"/account/tokens/{listed['token_id']}"
    assert (await bob.delete(path, headers=await csrf_of(bob))).status_code == 404
    assert (await alice.delete(path, headers={})).status_code == 403, "no token of the page"
    assert (await alice.delete(path, headers=await csrf_of(alice))).status_code == 200
    assert (await client.get("/v1/jobs")).status_code == 401
    assert "ci" not in (await alice.get("/account", headers={"accept": "text/html"})).text


async def test_the_secret_is_told_once_and_is_not_in_the_file(
    web: SharedWebHouse, tmp_path: Path
) -> None:
    alice = await web.signed_in("alice")
    token = await made(alice)
    secret = token.rpartition("_")[2] if token.count("_") == 2 else token.split("_", 2)[2]
    kept = (tmp_path / TOKEN_FILE).read_text()
    assert secret not in kept
    assert secret not in (await alice.get("/account/tokens")).text
    assert (tmp_path / TOKEN_FILE).stat().st_mode & 0o077 == 0


async def test_tokens_outlive_a_restart_of_the_server_and_sessions_do_not(
    house: RpcHouse, tmp_path: Path
) -> None:
    async with shared_web_house(house, tmp_path) as first:
        alice = await first.signed_in("alice")
        token, cookies = await made(alice), dict(alice.cookies)
    async with shared_web_house(house, tmp_path) as second:
        assert (await program(second, token).get("/v1/jobs")).status_code == 200
        browser = second.browser()
        browser.cookies.update(cookies)
        assert (await browser.get("/v1/jobs")).status_code == 401


async def test_a_token_ends_at_its_end(house: RpcHouse, tmp_path: Path) -> None:
    clock = FakeClock()
    async with shared_web_house(house, tmp_path, clock=clock) as web:
        alice = await web.signed_in("alice")
        client = program(web, await made(alice, days=2))
        clock.advance(2 * DAY_S - 1)
        assert (await client.get("/v1/jobs")).status_code == 200
        clock.advance(1)
        assert (await client.get("/v1/jobs")).status_code == 401


async def test_a_token_is_not_the_next_owners_of_the_name(web: SharedWebHouse) -> None:
    client = program(web, await made(await web.signed_in("alice")))
    assert (await client.get("/v1/jobs")).status_code == 200
    web.house.control.add_user("alice", "user")  # given again
    for _ in range(2):
        assert (await client.get("/v1/jobs")).status_code == 401


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"scope": "root"}, "scope"),
        ({"days": 0}, "days"),
        ({"days": 366}, "days"),
        ({"days": True}, "days"),
        ({"label": ""}, "label"),
        ({"label": "x" * 61}, "label"),
        ({"label": "a\x1b[31m"}, "label"),
        ({"label": ["a"]}, "label"),
    ],
)
async def test_a_wrong_wish_is_refused_in_words(
    web: SharedWebHouse, asked: dict[str, Any], field: str
) -> None:
    alice = await web.signed_in("alice")
    told = {"label": "ci", "scope": "read", "days": 30} | asked
    answer = await alice.post("/account/tokens", json=told, headers=await csrf_of(alice))
    assert (answer.status_code, answer.json()["field"]) == (400, field)


async def test_a_user_has_few_tokens(web: SharedWebHouse) -> None:
    alice = await web.signed_in("alice")
    for _ in range(MOST_OF_A_USER):
        await made(alice)
    told = {"label": "more", "scope": "read", "days": 1}
    answer = await alice.post("/account/tokens", json=told, headers=await csrf_of(alice))
    assert answer.status_code == 429
    await made(await web.signed_in("bob"))


@pytest.mark.parametrize("token", ["", "x", "dlqt_", "dlqt_00_x", "dlqt_000000000000_x", "\u00e9"])
async def test_a_made_up_token_opens_nothing(web: SharedWebHouse, token: str) -> None:
    client = web.browser()
    answer = await client.get("/v1/jobs", headers=[(b"authorization", f"Bearer {token}".encode())])
    assert answer.status_code == 401


async def test_a_damaged_file_of_tokens_is_told_at_the_start(
    house: RpcHouse, tmp_path: Path
) -> None:
    from dlq_common.errors import ConfigError

    path = tmp_path / TOKEN_FILE
    path.write_text(json.dumps({"v": 1, "tokens": [{"token_id": "x"}]}))
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="damaged"):
        async with shared_web_house(house, tmp_path):
            pass


async def test_a_token_ends_with_the_revoked_certificate_of_its_maker(
    house: RpcHouse, tmp_path: Path
) -> None:
    proven = parse_identity(house.certificate("alice", Role.USER)[1])
    async with shared_web_house(house, tmp_path) as web:
        by_link = await made(await web.signed_in("alice"))
        browser = web.browser(certificate=proven)
        browser.headers.update({"origin": ORIGIN, "sec-fetch-site": "same-origin"})
        assert (await browser.post("/enter/certificate")).status_code == 303
        token = await made(browser)
        assert (await program(web, token).get("/v1/jobs")).status_code == 200
    async with shared_web_house(house, tmp_path) as web:  # a restart of the server keeps both
        running = program(web, token)
        assert (await running.get("/v1/jobs")).status_code == 200
        root: Any = AdminServiceStub(house.channel_as("root", Role.ADMIN))
        asked = admin.RevokeCertificatesRequest(request_id="r", serial=proven.serial)
        await root.RevokeCertificates(asked, timeout=DEADLINE_S)
        assert (await running.get("/v1/jobs")).status_code == 401
        assert (await program(web, token).get("/v1/jobs")).status_code == 401
        assert (await program(web, by_link).get("/v1/jobs")).status_code == 200


async def test_a_file_of_before_has_no_certificates(house: RpcHouse, tmp_path: Path) -> None:
    async with shared_web_house(house, tmp_path) as web:
        token = await made(await web.signed_in("alice"))
    path = tmp_path / TOKEN_FILE
    told = json.loads(path.read_text())
    del told["certificates"]
    assert "certificate" not in told["tokens"][0], "a former release reads this file, too"
    path.write_text(json.dumps(told))
    async with shared_web_house(house, tmp_path) as web:
        assert (await program(web, token).get("/v1/jobs")).status_code == 200
