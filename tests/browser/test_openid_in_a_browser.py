"""Signing in at an issuer, by a certificate, and for a command line: in a real browser.

The issuer is a server of its own on loopback. Each way of cheating that a browser can carry is
refused on a page with words.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from dlq_client.line.identity import load_identity
from dlq_common.identity.pki import Role
from support.oidc_issuer import Claims, of_another, unsigned
from support.shared_browser_site import SharedSite

pytestmark = pytest.mark.browser
DLQ = Path(sys.executable).parent / "dlq"
SIGN_IN = re.compile("/sign-in")
BUTTON = "Sign in with your organisation"
NARROW: dict[str, Any] = {"viewport": {"width": 360, "height": 640}, "color_scheme": "dark"}


@pytest.fixture(autouse=True)
def honest(shared: SharedSite) -> Iterator[None]:
    """Each test leaves an honest issuer."""
    yield
    issuer = shared.issuer.issuer
    issuer.wrong, issuer.forge = dict, str


def stranger(shared: SharedSite, path: str = "/sign-in", **settings: Any) -> Any:
    return shared.at(path, ignore_https_errors=True, **settings)


def goes_in(page: Any, name: str) -> None:
    """From the page of all ways, through the issuer, and back."""
    page.get_by_role("link", name=BUTTON).click()
    page.get_by_role("button", name=f"I am {name}").click()


def check(shared: SharedSite, page: Any, name: str) -> None:
    """The page can be read, and fits; its picture is kept. Its style must have come before."""
    page.wait_for_load_state()
    shared.picture(page, name)
    assert shared.findings(page) == []
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.short
def test_a_user_signs_in_at_the_issuer_and_out_again(shared: SharedSite) -> None:
    page = stranger(shared, "/nodes")
    goes_in(page, "bob")
    page.get_by_role("link", name="bob (user)").wait_for()
    assert page.url == f"{shared.base}/nodes", "where the browser wanted to go"
    asked = shared.issuer.asked[-1]
    assert asked["code_challenge_method"] == "S256"
    assert asked["redirect_uri"] == f"{shared.base}/enter/openid/back"
    names = {cookie["name"]: cookie for cookie in page.context.cookies()}
    assert set(names) == {"__Host-dlq"}, "nothing is left of the way in"
    page.get_by_role("button", name="Sign out", exact=True).click()
    page.wait_for_url(SIGN_IN)
    page.goto(f"{shared.base}/nodes")
    assert SIGN_IN.search(page.url)


WRONG: dict[str, tuple[Callable[[Claims], Claims], Callable[[str], str], str]] = {
    "unsigned": (dict, unsigned, "signature"),
    "forged": (dict, of_another, "signature"),
    "another issuer": (lambda c: c | {"iss": "https://evil.example"}, str, "another issuer"),
    "a fast clock": (lambda c: c | {"iat": c["iat"] + 120}, str, "clocks"),
    "a slow clock": (lambda c: c | {"exp": c["iat"] - 120}, str, "clocks"),
    "another sign-in": (lambda c: c | {"nonce": "x"}, str, "nonce"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_token_opens_nothing_and_is_told_in_words(shared: SharedSite, name: str) -> None:
    issuer = shared.issuer.issuer
    issuer.wrong, issuer.forge, words = WRONG[name]
    page = stranger(shared)
    goes_in(page, "bob")
    page.get_by_text(words).first.wait_for()
    assert "Traceback" not in page.content()
    page.goto(f"{shared.base}/nodes")
    assert SIGN_IN.search(page.url)
    issuer.wrong, issuer.forge = dict, str
    goes_in(page, "bob")
    page.get_by_role("link", name="bob (user)").wait_for()


def test_clocks_may_differ_a_little(shared: SharedSite) -> None:
    shared.issuer.issuer.wrong = lambda c: c | {"iat": c["iat"] + 40}
    page = stranger(shared)
    goes_in(page, "bob")
    page.get_by_role("link", name="bob (user)").wait_for()


def test_the_way_back_is_good_once(shared: SharedSite) -> None:
    page = stranger(shared)
    with page.expect_request(re.compile("/enter/openid/back")) as back:
        goes_in(page, "bob")
    page.get_by_role("link", name="bob (user)").wait_for()
    for other in (page, stranger(shared)):
        other.goto(back.value.url)
        other.get_by_text("was not begun by this browser").wait_for()


def test_a_logout_at_the_issuer_empties_the_open_pages(shared: SharedSite) -> None:
    page, other = stranger(shared), shared.of("alice")
    goes_in(page, "bob")
    page.get_by_role("link", name="bob (user)").wait_for()
    token = shared.issuer.issuer.logout_token("u-bob")
    told = httpx.post(
        f"{shared.base}/enter/openid/logout", data={"logout_token": token}, verify=False
    )
    assert told.status_code == 200
    page.wait_for_url(SIGN_IN)
    other.reload()
    assert other.get_by_role("link", name="alice (user)").is_visible()


def test_a_group_of_the_issuer_raises_the_role_for_a_session(shared: SharedSite) -> None:
    page = stranger(shared)
    goes_in(page, "alice")
    page.get_by_role("link", name="alice (operator)").click()
    page.get_by_text("gpu-ops").wait_for()
    check(shared, page, "account-with-groups")
    assert shared.of("alice").get_by_role("link", name="alice (user)").is_visible()


def test_nobody_whom_the_master_does_not_know_gets_in(shared: SharedSite) -> None:
    page = stranger(shared)
    goes_in(page, "mallory")
    page.get_by_text("there is no user mallory").wait_for()
    page.goto(f"{shared.base}/nodes")
    assert SIGN_IN.search(page.url)


# --- a client certificate ---


def with_certificate(shared: SharedSite, name: str) -> Any:
    """A page of a browser that shows the certificate of this user."""
    assert shared.people is not None
    key, certificate = shared.people.house.certificate(name, Role.USER)
    shown = {"origin": shared.base, "cert": certificate, "key": key}
    return stranger(shared, client_certificates=[shown])


@pytest.mark.short
def test_the_button_of_certificates_signs_its_holder_in(shared: SharedSite) -> None:
    page = with_certificate(shared, "bob")
    page.get_by_role("button", name="Sign in with your certificate").click()
    page.get_by_role("link", name="bob (user)").wait_for()
    page.goto(f"{shared.base}/nodes")
    assert page.get_by_role("link", name="bob (user)").is_visible()
    thief = shared.page(page.context.storage_state(), ignore_https_errors=True)
    thief.goto(f"{shared.base}/nodes")
    assert SIGN_IN.search(thief.url), "the cookie alone opens nothing"


def test_without_a_certificate_the_button_says_how_to_get_one(shared: SharedSite) -> None:
    page = stranger(shared)
    page.get_by_role("button", name="Sign in with your certificate").click()
    page.get_by_text("has shown no certificate").wait_for()


# --- a command line ---


@contextmanager
def command_line(shared: SharedSite, home: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`dlq login --oidc` on a host without a broker, and the code that it shows."""
    assert shared.people is not None
    trust = shared.people.config.with_name("page.crt")
    words = ["login", "--oidc", "--web", shared.base, "--json"]
    environ = os.environ | {"DLQ_HOME": str(home), "SSL_CERT_FILE": str(trust)}
    process = subprocess.Popen(
        [DLQ, *words], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"type the code (\S+)", line):
                yield process, found[1]
                return
        raise AssertionError("no code was shown")
    finally:
        process.kill()
        process.communicate()


def confirming(page: Any, code: str, name: str) -> None:
    page.get_by_label("Code").fill(code.lower())
    page.get_by_role("button", name="Go on").click()
    page.get_by_text(code).wait_for()
    page.get_by_role("link", name="Sign in to go on").click()
    page.get_by_role("button", name=f"I am {name}").click()
    page.get_by_text("shows the code").wait_for()


@pytest.mark.parametrize("look", [{}, NARROW], ids=["wide", "narrow-dark"])
def test_a_command_line_gets_a_certificate_that_its_user_confirms(
    shared: SharedSite, tmp_path: Path, look: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    shown = request.node.callspec.id
    with command_line(shared, tmp_path / "home") as (process, code):
        page = stranger(shared, "/device", **look)
        check(shared, page, f"device-{shown}")
        confirming(page, code, "bob")
        assert shared.issuer.asked[-1]["prompt"] == "login"
        assert "only if you have started it yourself" in page.locator("main").inner_text()
        check(shared, page, f"device-confirm-{shown}")
        page.get_by_role("button", name="Confirm as bob").click()
        page.get_by_text("has its certificate").wait_for()
        check(shared, page, f"device-done-{shown}")
        out, _ = process.communicate()
    assert process.returncode == 0
    assert '"user":"bob"' in out
    identity = load_identity(tmp_path / "home")
    assert identity is not None
    assert (identity.user, identity.role, identity.renews) == ("bob", "user", False)
    page.goto(f"{shared.base}/nodes")
    assert SIGN_IN.search(page.url), "the browser itself is not signed in by that"


@pytest.mark.short
def test_a_command_line_of_somebody_else_is_refused_by_a_button(
    shared: SharedSite, tmp_path: Path
) -> None:
    with command_line(shared, tmp_path / "home") as (process, code):
        page = stranger(shared, f"/device?code={code}")
        page.get_by_role("link", name="Sign in to go on").click()
        page.get_by_role("button", name="I am bob").click()
        page.get_by_role("button", name="Refuse").click()
        page.get_by_text("gets nothing").wait_for()
        _, err = process.communicate()
    assert process.returncode == 4
    assert "bob has refused it" in err
    assert load_identity(tmp_path / "home") is None


def test_a_code_that_nobody_shows_is_told(shared: SharedSite) -> None:
    page = stranger(shared, "/device?code=BBBB-BBBB")
    page.get_by_role("link", name="Sign in to go on").click()
    page.get_by_role("button", name="I am bob").click()
    page.get_by_text("no command line waits").wait_for()
