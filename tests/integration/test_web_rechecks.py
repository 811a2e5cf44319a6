"""Sessions that the issuer ends without a word to us: they end within `openid.recheck`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from dlq_web.entrance.rechecks import AGAIN_S, AT_ONCE
from support.fake_clock import FakeClock
from support.oidc_issuer import Claims, OidcIssuer, openid_config
from support.rpc_house import RpcHouse, rpc_house
from support.shared_web_house import PAGE, SharedWebHouse, shared_web_house

pytestmark = pytest.mark.integration
EVERY_S = 300.0
JSON = {"accept": "application/json"}


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path, web_may_act_for=("user", "operator")) as house:
        yield house


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def issuer(clock: FakeClock) -> OidcIssuer:
    return OidcIssuer(clock, refreshes=True)


@pytest.fixture
async def web(
    house: RpcHouse, tmp_path: Path, issuer: OidcIssuer, clock: FakeClock
) -> AsyncIterator[SharedWebHouse]:
    config = openid_config(tmp_path, user_groups=("gpu-users",), told_groups=("gpu-ops",))
    async with shared_web_house(
        house, tmp_path, clock=clock, openid=config, fetch=issuer.fetch
    ) as web:
        yield web


async def signed_in(
    web: SharedWebHouse, issuer: OidcIssuer, name: str, subject: str = ""
) -> httpx.AsyncClient:
    browser = web.browser()
    begun = await browser.get("/enter/openid", headers=PAGE)
    claims = {"preferred_username": name, "sub": subject or f"u-{name}", "groups": ["gpu-users"]}
    params = issuer.authorize(begun.headers["location"], **claims)
    back = await browser.get("/enter/openid/back", params=params, headers=PAGE)
    assert back.status_code == 303, back.text
    return browser


async def signed_in_often(
    web: SharedWebHouse, issuer: OidcIssuer, times: int
) -> list[httpx.AsyncClient]:
    """The same user, as u-0, u-1 and so on of the issuer."""
    return [await signed_in(web, issuer, "alice", f"u-{number}") for number in range(times)]


async def is_in(browser: httpx.AsyncClient) -> bool:
    return (await browser.get("/v1/jobs", headers=JSON)).status_code == 200


async def later(web: SharedWebHouse, clock: FakeClock, by_s: float) -> None:
    """So much later the server looks after its sessions."""
    clock.advance(by_s)
    assert web.server.rechecks is not None
    await web.server.rechecks.sweep()


async def test_a_session_that_the_issuer_has_ended_ends_within_the_bound(
    web: SharedWebHouse, issuer: OidcIssuer, clock: FakeClock
) -> None:
    alice, bob = [await signed_in(web, issuer, name) for name in ("alice", "bob")]
    issuer.revoke("u-alice")
    await later(web, clock, EVERY_S - 1.0)
    assert await is_in(alice)
    await later(web, clock, 1.0)
    assert not await is_in(alice)
    assert await is_in(bob)
    await later(web, clock, EVERY_S)
    assert await is_in(bob), "each refresh token is good once, and the next one was taken"


async def test_an_issuer_that_is_away_ends_no_session_and_is_asked_again_soon(
    web: SharedWebHouse, issuer: OidcIssuer, clock: FakeClock
) -> None:
    alice = await signed_in(web, issuer, "alice")
    issuer.away = True
    issuer.revoke("u-alice")
    await later(web, clock, EVERY_S)
    assert await is_in(alice)
    issuer.away = False
    await later(web, clock, AGAIN_S)
    assert not await is_in(alice)


async def test_a_new_secret_of_this_server_says_nothing_about_its_users(
    web: SharedWebHouse, issuer: OidcIssuer, clock: FakeClock
) -> None:
    alice = await signed_in(web, issuer, "alice")
    issuer.forgets_us = True
    await later(web, clock, EVERY_S)
    assert await is_in(alice)


@pytest.mark.parametrize(
    "change",
    [{"groups": []}, {"groups": ["gpu-users", "gpu-ops"]}, {"preferred_username": "bob"}],
    ids=["no right to come in", "another group that the master hears of", "another user"],
)
async def test_a_session_of_which_the_issuer_tells_something_else_is_over(
    web: SharedWebHouse, issuer: OidcIssuer, clock: FakeClock, change: dict[str, object]
) -> None:
    alice = await signed_in(web, issuer, "alice")
    issuer.change("u-alice", nickname="al")
    await later(web, clock, EVERY_S)
    assert await is_in(alice)
    issuer.change("u-alice", **change)
    await later(web, clock, EVERY_S)
    assert not await is_in(alice)


async def test_a_token_of_somebody_else_that_comes_with_a_refresh_ends_the_session(
    web: SharedWebHouse, issuer: OidcIssuer, clock: FakeClock
) -> None:
    alice = await signed_in(web, issuer, "alice")
    issuer.wrong = lambda claims: claims | {"sub": "u-mallory"}
    await later(web, clock, EVERY_S)
    assert not await is_in(alice)


async def test_a_refresh_without_an_id_token_says_only_that_the_session_stands(
    web: SharedWebHouse, issuer: OidcIssuer, clock: FakeClock
) -> None:
    issuer.tells_again = False
    alice = await signed_in(web, issuer, "alice")
    issuer.change("u-alice", groups=[])
    await later(web, clock, EVERY_S)
    assert await is_in(alice)


async def test_nobody_is_asked_about_a_session_that_is_over(
    web: SharedWebHouse, issuer: OidcIssuer, clock: FakeClock
) -> None:
    await signed_in(web, issuer, "alice")
    web.server.sessions.end_all()
    asked = len(issuer.fetched)
    await later(web, clock, 2 * EVERY_S)
    assert len(issuer.fetched) == asked


async def test_without_a_refresh_token_a_session_goes_on_as_before(
    web: SharedWebHouse, issuer: OidcIssuer, clock: FakeClock
) -> None:
    issuer.refreshes = False
    alice = await signed_in(web, issuer, "alice")
    await later(web, clock, EVERY_S)
    assert await is_in(alice)


async def test_a_fault_of_one_recheck_is_logged_and_the_others_go_on(
    web: SharedWebHouse, issuer: OidcIssuer, clock: FakeClock, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    alice, bob = [await signed_in(web, issuer, name) for name in ("alice", "bob")]
    issuer.revoke("u-bob")

    def fail(_claims: object) -> Claims:
        raise RuntimeError("of the library")

    issuer.wrong = fail
    await later(web, clock, EVERY_S)
    assert await is_in(alice)
    assert not await is_in(bob)
    assert "of the library" in "".join(capsys.readouterr())
    issuer.wrong = dict
    issuer.revoke("u-alice")
    await later(web, clock, AGAIN_S)
    assert not await is_in(alice), "it was asked about again soon"


async def test_of_many_that_are_due_few_wait_for_an_issuer_that_hangs(
    web: SharedWebHouse, issuer: OidcIssuer, clock: FakeClock
) -> None:
    browsers = await signed_in_often(web, issuer, 2 * AT_ONCE)
    asked = issuer.fetched.count("token")
    issuer.away = True
    await later(web, clock, EVERY_S)
    assert issuer.fetched.count("token") == asked + AT_ONCE
    issuer.away = False
    issuer.revoke(f"u-{AT_ONCE}")
    await later(web, clock, AGAIN_S)
    assert [await is_in(one) for one in browsers].count(False) == 1


async def test_those_that_were_put_off_come_before_those_that_failed(
    web: SharedWebHouse, issuer: OidcIssuer, clock: FakeClock
) -> None:
    browsers = await signed_in_often(web, issuer, 2 * AT_ONCE)
    issuer.cannot_judge = {f"u-{number}" for number in range(AT_ONCE)}
    await later(web, clock, EVERY_S)
    issuer.revoke(f"u-{2 * AT_ONCE - 1}")
    await later(web, clock, AGAIN_S)
    assert not await is_in(browsers[-1])


async def test_nobody_is_asked_about_a_session_that_ends_while_it_waits_for_its_place(
    web: SharedWebHouse, issuer: OidcIssuer, clock: FakeClock
) -> None:
    await signed_in_often(web, issuer, AT_ONCE + 1)
    asked = issuer.fetched.count("token")

    def end_all(claims: Claims) -> Claims:
        web.server.sessions.end_all()
        return claims

    issuer.wrong = end_all
    await later(web, clock, EVERY_S)
    assert issuer.fetched.count("token") < asked + AT_ONCE + 1
