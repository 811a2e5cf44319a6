"""The server for all users in browsers of several people; nobody sees a hidden job of another."""

from __future__ import annotations

import re
from typing import Any

import pytest

from support.shared_browser_site import SharedSite

pytestmark = pytest.mark.browser
SIGN_IN = re.compile("/sign-in")
LOOKS: dict[str, dict[str, Any]] = {
    "wide": {"viewport": {"width": 1280, "height": 720}},
    "narrow-dark": {"viewport": {"width": 360, "height": 640}, "color_scheme": "dark"},
}
# An order as a page makes it, for a job that the page does not show.
CANCELS = """async (job) => (await fetch('/api/dlq.v1.JobService/CancelJob', {
  method: 'POST', body: JSON.stringify({ jobId: job }),
  headers: { 'content-type': 'application/json',
             'x-dlq-csrf': document.querySelector('meta[name="csrf"]').content },
})).status"""


def check(shared: SharedSite, page: Any, name: str) -> None:
    """The page can be read, and fits; its picture is kept."""
    shared.picture(page, name)
    assert shared.findings(page) == []
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def stranger(shared: SharedSite, path: str, look: str = "wide") -> Any:
    """A page of a browser in which nobody has signed in."""
    return shared.at(path, ignore_https_errors=True, **LOOKS[look])


@pytest.mark.parametrize("look", LOOKS)
def test_the_ways_in_can_be_read_by_everybody(shared: SharedSite, look: str) -> None:
    page = stranger(shared, "/jobs", look)
    assert page.url == f"{shared.base}/sign-in?next=/jobs"
    assert page.get_by_role("button", name="Sign in with your certificate").is_visible()
    check(shared, page, f"sign-in-{look}")
    page.goto(shared.server.new_link())
    assert page.get_by_role("button", name="Sign in as alice").is_visible()
    check(shared, page, f"enter-{look}")
    page.get_by_role("button", name="Sign in as alice").click()
    page.get_by_role("link", name="alice (user)").wait_for()
    (cookie,) = page.context.cookies()
    assert (cookie["name"], cookie["secure"], cookie["httpOnly"]) == ("__Host-dlq", True, True)


@pytest.mark.parametrize("look", LOOKS)
def test_a_token_is_made_shown_once_and_revoked(shared: SharedSite, look: str) -> None:
    page = shared.of("alice", **LOOKS[look])
    page.get_by_role("link", name="alice (user)").click()
    page.wait_for_load_state()  # a form that is sent before its script has run asks for the page
    page.get_by_label("Label").fill(look)
    page.get_by_role("button", name="Make a token").click()
    page.get_by_text("It is shown once").wait_for()
    assert len(page.locator("#secret").inner_text()) > 30
    check(shared, page, f"account-{look}")
    page.reload()
    row = page.get_by_role("row", name=look)
    row.wait_for()
    assert not page.locator("#secret").is_visible()
    check(shared, page, f"account-with-a-token-{look}")
    row.get_by_role("button", name="Revoke").click()
    row.wait_for(state="detached")


@pytest.mark.parametrize("look", LOOKS)
def test_the_wall_needs_no_session_and_names_nobody(shared: SharedSite, look: str) -> None:
    page = stranger(shared, "/wall", look)
    page.goto(shared.people.wall() if shared.people else "")
    page.wait_for_selector("#wall[data-nodes='2'][data-drawn]")
    check(shared, page, f"shared-wall-{look}")
    for name in ("alice", "bob", "gpu01"):
        assert name not in page.content()


@pytest.mark.short
def test_another_user_neither_sees_nor_cancels_a_hidden_job(shared: SharedSite) -> None:
    assert shared.people is not None
    alice, bob = shared.of("alice"), shared.of("bob")
    job = shared.people.submitted("alice", "secret-plan")
    alice.get_by_text("secret-plan").wait_for()
    for path in ("/jobs?user=*", "/search?q=secret-plan", "/gpus", f"/jobs/{job}"):
        bob.goto(f"{shared.base}{path}")
        assert "alice" not in bob.content()
        assert bob.get_by_role("link", name="secret-plan").count() == 0
    assert f"no job {job}" in bob.locator("main").inner_text()
    bob.goto(f"{shared.base}/")
    assert bob.evaluate(CANCELS, job) == 404
    alice.goto(f"{shared.base}/jobs/{job}")
    assert "cancelled" not in alice.locator("main").inner_text()
    assert alice.evaluate(CANCELS, job) == 200


def test_signing_out_everywhere_ends_the_open_pages_of_that_user_alone(shared: SharedSite) -> None:
    here, elsewhere, bob = shared.of("alice"), shared.of("alice"), shared.of("bob")
    tab = elsewhere.context.new_page()
    tab.goto(f"{shared.base}/nodes")
    here.goto(f"{shared.base}/account")
    here.get_by_role("button", name="Sign out everywhere").click()
    here.wait_for_url(SIGN_IN)
    for page in (elsewhere, tab):
        page.wait_for_url(SIGN_IN)
        assert "gpu01" not in page.content()
    assert bob.evaluate("fetch('/v1/jobs').then((answer) => answer.status)") == 200
    bob.reload()
    assert bob.get_by_role("link", name="bob (user)").is_visible()
