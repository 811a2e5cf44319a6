"""The pages of `dlq web` in a real browser: they renew, say when a line is lost, and hide nothing.

A violation of the content policy, an error of a script and a request to another host fail each
test. Pictures of all pages lie in build/browser afterwards.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.harness import Daemons

playwright = pytest.importorskip("playwright.sync_api", reason="make browser installs it")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="likewise")

pytestmark = pytest.mark.browser
BIN = Path(sys.executable).parent
CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
PICTURES = Path(__file__).resolve().parents[2] / "build" / "browser"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
PATIENCE_MS = 30_000
PAGES = ("/", "/jobs", "/jobs/1", "/jobs/4", "/jobs/7", "/nodes", "/jobs/99")
HOSTILE = "<img src=x onerror=alert(1)>"
TALKS = 'for i in $(seq 900); do printf "line %s \\033[31mred\\033[0m\\n" $i; sleep 1; done'


@dataclass
class Site:
    """A cluster with jobs of every kind, its web server, and a browser that has signed in."""

    daemons: Daemons
    base: str
    browser: Any
    state: Any  # the cookies of the session
    faults: list[str] = field(default_factory=list)

    def page(self, **settings: Any) -> Any:
        """A page in a browser profile of its own; its faults are noted."""
        page = self.browser.new_context(storage_state=self.state, **settings).new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", self._console)
        page.on("request", self._asked)
        page.on("dialog", lambda dialog: dialog.accept())
        return page

    def at(self, path: str, **settings: Any) -> Any:
        """The same, at an address."""
        page = self.page(**settings)
        page.goto(f"{self.base}{path}")
        return page

    def _console(self, told: Any) -> None:
        lost = "Failed to load resource" in told.text or "net::ERR" in told.text
        if told.type == "error" and not lost:
            self.faults.append(told.text)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(self.base):
            self.faults.append(f"a request to {request.url}")


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    with Daemons(tmp_path_factory.mktemp("site"), ("n1", "n2"), twin=True).up() as daemons:
        for number in range(3):
            daemons.said("submit", "-G", "4", "--name", f"train-{number}", "--", "sh", "-c", TALKS)
        for _ in range(3):
            daemons.said("submit", "-G", "8", "--name", HOSTILE, "--", "sleep", "900")
        daemons.said("submit", "-G", "1", "--name", "fails", "--", "sh", "-c", "echo boom; exit 3")
        yield daemons
        daemons.said("cancel", "-u", "me", "--kill", "--wait", "-y")  # jobs outlive their agents


@pytest.fixture(scope="module")
def whole_site(daemons: Daemons) -> Iterator[Site]:
    if not Path(CHROMIUM).exists():
        pytest.fail("there is no chromium: apt-get install chromium")
    server = subprocess.Popen(
        [BIN / "dlq", "web"], env=os.environ | daemons.environment(), stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert server.stderr is not None
    try:
        found = re.search(r"open ((http://[^/]+)/\S+)", server.stderr.readline())
        assert found is not None
        with playwright.sync_playwright() as started:
            browser = started.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
            context = browser.new_context()
            context.new_page().goto(found[1])
            yield Site(daemons, found[2], browser, context.storage_state())
            browser.close()
    finally:
        server.terminate()
        server.wait()
        server.stderr.close()


@pytest.fixture
def site(whole_site: Site) -> Iterator[Site]:
    """No test leaves a fault behind, nor a page."""
    whole_site.faults.clear()
    yield whole_site
    for context in whole_site.browser.contexts:
        context.close()
    assert whole_site.faults == []


@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_no_serious_finding_and_its_picture_is_kept(site: Site, path: str) -> None:
    page = site.at(path)
    page.wait_for_timeout(500)
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / f"{path.strip('/').replace('/', '-') or 'me'}.png")
    found = axe.Axe().run(page).response["violations"]
    assert [one["id"] for one in found if one["impact"] in ("serious", "critical")] == []


@pytest.mark.parametrize("path", PAGES)
def test_a_dark_and_narrow_page_can_be_read_without_scrolling_sideways(
    site: Site, path: str
) -> None:
    page = site.at(path, viewport={"width": 360, "height": 640}, color_scheme="dark")
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= 360
    found = axe.Axe().run(page).response["violations"]
    assert [one["id"] for one in found if one["id"] == "color-contrast"] == []


def test_a_page_shows_what_happens_by_itself(site: Site) -> None:
    page = site.at("/")
    site.daemons.said("submit", "-G", "1", "--name", "fresh-one", "--", "sleep", "900")
    page.get_by_text("fresh-one").wait_for()


def test_eight_tabs_load_and_all_of_them_renew(site: Site) -> None:
    first = site.at("/")
    tabs = [first, *(first.context.new_page() for _ in range(7))]
    for tab in tabs[1:]:
        tab.goto(f"{site.base}/")
    site.daemons.said("submit", "-G", "1", "--name", "for-all-tabs", "--", "sleep", "900")
    for tab in tabs:
        tab.get_by_text("for-all-tabs").wait_for(timeout=PATIENCE_MS)


def test_output_goes_on_and_is_no_terminal(site: Site) -> None:
    page = site.at("/jobs/1")
    page.get_by_text("line 2 red", exact=False).wait_for()
    last = page.locator("#output").inner_text().strip().splitlines()[-1]
    number = int(last.split()[1]) + 2
    page.get_by_text(f"line {number} red", exact=False).wait_for()
    assert "[31m" not in page.locator("#output").inner_text()


def test_the_output_of_a_new_attempt_takes_the_place_of_the_old(site: Site) -> None:
    """Its offsets are others: read on from the old one's, it would stay unseen."""
    page = site.at("/jobs/2")
    page.get_by_text("line 4 red", exact=False).wait_for()
    site.daemons.said("requeue", "-y", "2")
    page.get_by_text("line 4 red", exact=False).wait_for(state="hidden")
    page.get_by_text("line 1 red", exact=False).first.wait_for()
    assert page.locator("#output").inner_text().count("line 1 red") == 1


def test_a_page_renews_once_nothing_is_selected_any_more(site: Site) -> None:
    page = site.at("/")
    page.evaluate("getSelection().selectAllChildren(document.querySelector('h1'))")
    site.daemons.said("submit", "-G", "1", "--name", "came-meanwhile", "--", "sleep", "900")
    page.wait_for_timeout(3000)
    assert page.get_by_text("came-meanwhile").count() == 0
    page.evaluate("getSelection().removeAllRanges()")
    page.get_by_text("came-meanwhile").wait_for()


def test_a_job_is_held_and_released_by_its_buttons(site: Site) -> None:
    page = site.at("/jobs/5")
    page.get_by_role("button", name="Hold").click()
    page.get_by_role("button", name="Release").wait_for()
    page.get_by_role("button", name="Release").click()
    page.get_by_role("button", name="Hold").wait_for()


def test_names_are_text_and_run_nothing(site: Site) -> None:
    page = site.at("/jobs")
    assert page.get_by_text(HOSTILE).count() >= 1
    assert page.locator("main img").count() == 0


def test_a_master_that_restarts_under_a_page_is_told_and_forgotten(site: Site) -> None:
    page, job = site.at("/"), site.at("/jobs/1")
    job.get_by_text("line 1 red", exact=False).first.wait_for()
    site.daemons.kill("master")
    other = site.at("/nodes")
    other.get_by_text("master", exact=False).first.wait_for()
    page.get_by_text("the master does not answer").wait_for()  # without a touch
    site.daemons.start("master")
    site.daemons.wait_for("master")
    last = job.locator("#output").inner_text().strip().splitlines()[-1]
    number = int(last.split()[1]) + 5
    job.get_by_text(f"line {number} red", exact=False).wait_for(timeout=2 * PATIENCE_MS)
    page.get_by_text("the master does not answer").wait_for(state="hidden", timeout=2 * PATIENCE_MS)
    site.daemons.said("submit", "-G", "1", "--name", "after-the-restart", "--", "sleep", "900")
    page.get_by_text("after-the-restart").wait_for(timeout=2 * PATIENCE_MS)


def test_a_lost_network_is_told_and_the_page_stays(site: Site) -> None:
    page = site.at("/")
    page.context.set_offline(True)
    site.daemons.said("submit", "-G", "1", "--name", "unseen", "--", "sleep", "900")
    assert page.get_by_role("heading", name="Your jobs").is_visible()
    page.context.set_offline(False)
    page.get_by_text("unseen").wait_for(timeout=2 * PATIENCE_MS)


def test_everything_is_reached_by_the_keyboard(site: Site) -> None:
    page = site.at("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the content"
    job = page.get_by_role("link", name="1", exact=True)
    job.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/1")


def test_signing_out_ends_the_session_in_every_tab(site: Site) -> None:
    """The last one: it ends the session of all."""
    page = site.at("/")
    other = page.context.new_page()
    other.goto(f"{site.base}/nodes")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_text("nobody is signed in here").wait_for()
    other.reload()
    other.get_by_text("nobody is signed in here").wait_for()
