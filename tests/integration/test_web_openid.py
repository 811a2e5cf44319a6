"""Signing in by OpenID Connect: by the standard, and with an issuer or a browser that cheats."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from dlq_common.errors import PermissionDenied
from dlq_common.identity.pki import Role
from dlq_web.config import OpenIdConfig
from dlq_web.entrance.openid import BEGUN_S
from dlq_web.entrance.rules import ClaimRules, GroupRules
from dlq_web.entrance.ways import own_path
from support.fake_clock import FakeClock
from support.oidc_issuer import (
    CLIENT_ID,
    OidcIssuer,
    changed,
    of_another,
    openid_config,
    unsigned,
)
from support.rpc_house import RpcHouse, rpc_house
from support.shared_web_house import ORIGIN, PAGE, SharedWebHouse, shared_web_house

pytestmark = pytest.mark.integration
JSON = {"accept": "application/json"}
ALICE = {"preferred_username": "alice"}


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path, web_may_act_for=("user", "operator")) as house:
        yield house


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def issuer(clock: FakeClock) -> OidcIssuer:
    return OidcIssuer(clock)


@pytest.fixture
def config(tmp_path: Path) -> OpenIdConfig:
    return openid_config(tmp_path, operator_groups=("gpu-ops",), button="Sign in at the lab")


@pytest.fixture
async def web(
    house: RpcHouse, tmp_path: Path, issuer: OidcIssuer, clock: FakeClock, config: OpenIdConfig
) -> AsyncIterator[SharedWebHouse]:
    async with shared_web_house(
        house, tmp_path, clock=clock, openid=config, fetch=issuer.fetch
    ) as web:
        yield web


async def begun(browser: httpx.AsyncClient, to: str = "/") -> str:
    """The address of the issuer to which the browser is sent."""
    answer = await browser.get("/enter/openid", params={"next": to}, headers=PAGE)
    assert answer.status_code == 303, answer.text
    return answer.headers["location"]


async def back(browser: httpx.AsyncClient, **params: str) -> httpx.Response:
    """The issuer sends the browser back."""
    told = PAGE | {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    return await browser.get("/enter/openid/back", params=params, headers=told)


async def sign_in(
    browser: httpx.AsyncClient, issuer: OidcIssuer, to: str = "/", **claims: Any
) -> httpx.Response:
    return await back(browser, **issuer.authorize(await begun(browser, to), **claims))


async def is_in(browser: httpx.AsyncClient) -> bool:
    return (await browser.get("/v1/jobs", headers=JSON)).status_code == 200


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
async def test_a_user_of_the_issuer_signs_in(
    web: SharedWebHouse, issuer: OidcIssuer, algorithm: str
) -> None:
    issuer.algorithm = algorithm
    issuer.change_key()
    browser = web.browser()
    page = (await browser.get("/sign-in?next=/jobs", headers=PAGE)).text
    assert 'href="/enter/openid?next=%2Fjobs"' in page
    assert "Sign in at the lab" in page
    answer = await sign_in(browser, issuer, "/jobs", **ALICE)
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs")
    assert await is_in(browser)
    assert "alice (user)" in (await browser.get("/account", headers=PAGE)).text


async def test_the_issuer_is_asked_for_what_the_standard_wants(
    web: SharedWebHouse, issuer: OidcIssuer
) -> None:
    first, second = [httpx.URL(await begun(web.browser())).params for _ in range(2)]
    assert first["redirect_uri"] == f"{ORIGIN}/enter/openid/back"
    for name in ("state", "nonce", "code_challenge"):
        assert len(first[name]) >= 43, name
        assert first[name] != second[name], name


WRONG: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "another issuer": (lambda c: c | {"iss": "https://evil.example"}, "another issuer"),
    "another client": (lambda c: c | {"aud": "another"}, "another client"),
    "many clients": (lambda c: c | {"aud": [CLIENT_ID, "another"]}, "another client"),
    "given to another": (lambda c: c | {"azp": "another"}, "another client"),
    "no client": (lambda c: {k: v for k, v in c.items() if k != "aud"}, "another client"),
    "expired": (lambda c: c | {"exp": c["iat"] - 61}, "expired"),
    "no end": (lambda c: {k: v for k, v in c.items() if k != "exp"}, "lacks a time"),
    "an end in words": (lambda c: c | {"exp": "tomorrow"}, "lacks a time"),
    "an end that no time reaches": (lambda c: c | {"exp": float("nan")}, "lacks a time"),
    "an endless age": (lambda c: c | {"iat": float("nan")}, "lacks a time"),
    "of the future": (lambda c: c | {"iat": c["iat"] + 120}, "of the future"),
    "not yet": (lambda c: c | {"nbf": c["iat"] + 120}, "of the future"),
    "a fast clock": (lambda c: c | {"iat": c["iat"] + 7200, "exp": c["exp"] + 7200}, "clocks"),
    "old": (lambda c: c | {"iat": c["iat"] - 7200}, "too old"),
    "another sign-in": (lambda c: c | {"nonce": "x"}, "nonce"),
    "no nonce": (lambda c: {k: v for k, v in c.items() if k != "nonce"}, "nonce"),
    "nobody": (lambda c: {k: v for k, v in c.items() if k != "sub"}, "names nobody"),
}


@pytest.mark.parametrize("name", WRONG)
async def test_a_token_with_wrong_claims_is_refused_in_words(
    web: SharedWebHouse, issuer: OidcIssuer, name: str
) -> None:
    issuer.wrong, words = WRONG[name]
    browser = web.browser()
    answer = await sign_in(browser, issuer, **ALICE)
    assert answer.status_code == 401
    assert words in answer.text
    assert not await is_in(browser)


@pytest.mark.parametrize("forge", [unsigned, of_another, changed, lambda _token: "a.b.c"])
async def test_a_forged_token_is_refused(
    web: SharedWebHouse, issuer: OidcIssuer, forge: Callable[[str], str]
) -> None:
    issuer.forge = forge
    browser = web.browser()
    assert (await sign_in(browser, issuer, **ALICE)).status_code == 401
    assert not await is_in(browser)


async def test_a_signature_of_a_shared_secret_is_refused(
    web: SharedWebHouse, issuer: OidcIssuer
) -> None:
    issuer.algorithm = "HS256"
    answer = await sign_in(web.browser(), issuer, **ALICE)
    assert answer.status_code == 401
    assert "RS256 or ES256" in answer.text


async def test_clocks_may_differ_by_the_skew(web: SharedWebHouse, issuer: OidcIssuer) -> None:
    issuer.wrong = lambda c: c | {"iat": c["iat"] + 50, "exp": c["iat"] - 50}
    assert (await sign_in(web.browser(), issuer, **ALICE)).status_code == 303


async def test_a_code_is_good_once_and_for_its_browser_alone(
    web: SharedWebHouse, issuer: OidcIssuer
) -> None:
    mine, theirs = web.browser(), web.browser()
    answered = issuer.authorize(await begun(mine), **ALICE)
    await begun(theirs)
    assert (await back(theirs, **answered)).status_code == 401, "another browser began it"
    answered = issuer.authorize(await begun(mine), **ALICE)
    cookies = dict(mine.cookies)
    assert (await back(mine, **answered)).status_code == 303
    mine.cookies.update(cookies)
    assert (await back(mine, **answered)).status_code == 401, "a replay"
    fresh = httpx.URL(await begun(theirs)).params["state"]
    replayed = await back(theirs, code=answered["code"], state=fresh)
    assert replayed.status_code == 401
    assert "refuses the code" in replayed.text


async def test_a_sign_in_that_took_too_long_is_over(
    web: SharedWebHouse, issuer: OidcIssuer, clock: FakeClock
) -> None:
    browser = web.browser()
    answered = issuer.authorize(await begun(browser), **ALICE)
    clock.advance(BEGUN_S)
    assert (await back(browser, **answered)).status_code == 401


@pytest.mark.parametrize(
    "params",
    [
        {"error": "access_denied"},
        {"error": "<script>alert(1)</script>"},
        {"code": ""},
        {"iss": "https://evil.example"},
    ],
)
async def test_a_refusal_of_the_issuer_is_told(
    web: SharedWebHouse, issuer: OidcIssuer, params: dict[str, str]
) -> None:
    browser = web.browser()
    answered = issuer.authorize(await begun(browser), **ALICE)
    answer = await back(browser, **(answered | params))
    assert answer.status_code == 401
    assert "<script>alert" not in answer.text
    assert not await is_in(browser)


async def test_nobody_signs_in_without_a_state(web: SharedWebHouse) -> None:
    assert (await back(web.browser(), code="x", state="")).status_code == 401
    assert (await back(web.browser(), code="x")).status_code == 401


async def test_keys_of_the_issuer_may_change(
    web: SharedWebHouse, issuer: OidcIssuer, clock: FakeClock
) -> None:
    assert (await sign_in(web.browser(), issuer, **ALICE)).status_code == 303
    issuer.change_key()
    clock.advance(60)
    assert (await sign_in(web.browser(), issuer, **ALICE)).status_code == 303
    assert issuer.fetched.count("keys") == 2
    assert (await sign_in(web.browser(), issuer, **ALICE)).status_code == 303
    assert issuer.fetched.count("keys") == 2, "known keys are kept"


async def test_unknown_keys_do_not_have_the_issuer_asked_each_time(
    web: SharedWebHouse, issuer: OidcIssuer
) -> None:
    assert (await sign_in(web.browser(), issuer, **ALICE)).status_code == 303
    issuer.change_key()
    for _ in range(3):
        assert (await sign_in(web.browser(), issuer, **ALICE)).status_code == 401
    assert issuer.fetched.count("keys") == 1


async def test_an_issuer_that_is_away_ends_no_session(
    web: SharedWebHouse, issuer: OidcIssuer, clock: FakeClock
) -> None:
    browser = web.browser()
    await sign_in(browser, issuer, **ALICE)
    issuer.away = True
    clock.advance(3_700)
    answer = await web.browser().get("/enter/openid", headers=PAGE)
    assert answer.status_code == 503
    assert await is_in(browser)


async def test_an_issuer_of_another_name_is_not_believed(
    web: SharedWebHouse, issuer: OidcIssuer
) -> None:
    issuer.described_as = "https://evil.example"
    answer = await web.browser().get("/enter/openid", headers=PAGE)
    assert answer.status_code == 503
    assert "openid.issuer" in answer.text


async def test_groups_bound_the_role(web: SharedWebHouse, issuer: OidcIssuer) -> None:
    olga = {"preferred_username": "olga"}
    refused = await sign_in(web.browser(), issuer, **olga, groups=["gpu-users"])
    assert refused.status_code == 403
    assert "openid.operator_groups" in refused.text
    browser = web.browser()
    assert (await sign_in(browser, issuer, **olga, groups=["gpu-ops"])).status_code == 303
    assert await is_in(browser)
    root = {"preferred_username": "root"}
    refused = await sign_in(web.browser(), issuer, **root, groups=["gpu-ops"])
    assert refused.status_code == 403


def test_the_rules_of_groups() -> None:
    everybody = GroupRules()
    assert everybody.allow("user", [])
    assert not everybody.allow("operator", ["a"])
    some = GroupRules(user=("a",), operator=("b",))
    assert [some.allow("user", [g]) for g in ("a", "b", "c")] == [True, True, False]
    assert [some.allow("operator", [g]) for g in ("a", "b")] == [False, True]
    assert not some.allow("web", ["a", "b"])


@pytest.mark.parametrize(
    ("claims", "status"),
    [
        ({"email": "alice@example.org", "email_verified": True}, 303),
        ({"email": "alice@example.org"}, 403),
        ({"email": "alice@evil.example", "email_verified": True}, 403),
        ({"email": "alice@example.org.evil", "email_verified": True}, 403),
        ({"email": ["alice@example.org"], "email_verified": True}, 403),
        ({}, 403),
        ({"email": "nobody@example.org", "email_verified": True}, 401),
    ],
)
async def test_a_rule_makes_the_user_of_a_claim(
    house: RpcHouse, tmp_path: Path, issuer: OidcIssuer, clock: FakeClock, config: OpenIdConfig,
    claims: dict[str, Any], status: int,
) -> None:  # fmt: skip
    rule = replace(config, user_claim="email", user_pattern=r"([a-z]+)@example\.org")
    async with shared_web_house(
        house, tmp_path, clock=clock, openid=rule, fetch=issuer.fetch
    ) as web:
        assert (await sign_in(web.browser(), issuer, **claims)).status_code == status


def test_a_pattern_that_cuts_nothing_out_names_nobody() -> None:
    rules = ClaimRules("upn", "(?:([a-z]+)@example)?.*", "groups", GroupRules())
    with pytest.raises(PermissionDenied, match="user_pattern"):
        rules.user({"upn": "root"})


async def test_a_removed_user_is_out_whatever_the_issuer_says(
    web: SharedWebHouse, issuer: OidcIssuer
) -> None:
    browser = web.browser()
    await sign_in(browser, issuer, **ALICE)
    del web.house.control.published.all_users["alice"]
    assert not await is_in(browser)
    assert (await sign_in(web.browser(), issuer, **ALICE)).status_code == 401


async def test_a_logout_at_the_issuer_is_one_here(web: SharedWebHouse, issuer: OidcIssuer) -> None:
    browser = web.browser()
    await sign_in(browser, issuer, **ALICE)
    for token in (
        issuer.logout_token("u-17", events={}),
        issuer.logout_token("u-17", nonce="x"),
        unsigned(issuer.logout_token("u-17")),
        "",
    ):
        answer = await web.browser().post("/enter/openid/logout", data={"logout_token": token})
        assert answer.status_code == 401
    assert await is_in(browser)
    other = await web.browser().post(
        "/enter/openid/logout", data={"logout_token": issuer.logout_token("u-18")}
    )
    assert other.status_code == 200
    assert await is_in(browser)
    told = {"logout_token": issuer.logout_token("u-17")}
    assert (await web.browser().post("/enter/openid/logout", data=told)).status_code == 200
    assert not await is_in(browser)


async def test_the_issuer_may_end_many_sessions_at_once_and_a_stranger_tries_few(
    web: SharedWebHouse, issuer: OidcIssuer
) -> None:
    await sign_in(browser := web.browser(), issuer, **ALICE)
    others = web.browser("203.0.113.5")
    for number in range(40):
        told = {"logout_token": issuer.logout_token(f"u-{100 + number}")}
        assert (await others.post("/enter/openid/logout", data=told)).status_code == 200
    told = {"logout_token": issuer.logout_token("u-17")}
    assert (await others.post("/enter/openid/logout", data=told)).status_code == 200
    assert not await is_in(browser)
    forged = {"logout_token": unsigned(issuer.logout_token("u-17"))}
    ends = {(await others.post("/enter/openid/logout", data=forged)).status_code for _ in range(40)}
    assert ends == {401, 429}


@pytest.mark.parametrize(
    "to",
    [
        "https://evil.example", "//evil.example", "/\\evil.example", "\\\\evil.example",
        "javascript:x", "/\t/evil.example", "/a\r\nset-cookie: x", "", "jobs", "/" + "a" * 600,
        "/\u2215evil",
    ],
)  # fmt: skip
async def test_nobody_is_led_elsewhere(web: SharedWebHouse, issuer: OidcIssuer, to: str) -> None:
    assert own_path(to) == "/"
    answer = await sign_in(web.browser(), issuer, to, **ALICE)
    assert answer.headers["location"] == "/"


async def test_other_ways_stay_open(web: SharedWebHouse) -> None:
    assert await is_in(await web.signed_in("alice"))
    assert await is_in(await web.signed_in("olga", Role.OPERATOR))
