"""Faults under open pages, and hostile words in them: nothing is blank, nothing runs, nothing
leaks.
"""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

import pytest

from support.browser_site import HASTY, HOSTILE, PATIENCE_MS, Site

pytestmark = pytest.mark.browser
FOREVER = ("-G", "8", "--", "sleep", "900")
ESCAPES = r'printf "\033]0;owned\007\033[2Jseen <script>alert(1)</script>\n"; sleep 900'


@pytest.mark.short
@pytest.mark.parametrize("path", ["/", "/jobs", "/jobs/4"])
def test_names_are_text_and_run_nothing(site: Site, path: str) -> None:
    page = site.at(path)
    assert page.get_by_text(HOSTILE).count() >= 1
    assert page.locator("main img").count() == 0


def test_a_hostile_label_is_text(site: Site) -> None:
    job = site.submitted("labelled", "--label", "to=<svg onload=alert(1)>", *FOREVER)
    page = site.at(f"/jobs/{job}")
    assert page.locator("main svg[onload]").count() == 0


@pytest.mark.short
def test_output_that_would_take_over_a_terminal_or_a_page_is_text(site: Site) -> None:
    job = site.submitted("escapes", "-G", "1", "--", "sh", "-c", ESCAPES)
    page = site.at(f"/jobs/{job}")
    page.locator("#output", has_text="seen <script>alert(1)</script>").wait_for()
    told = page.locator("#output").inner_text()
    assert "\x1b" not in told
    assert "owned" not in told
    assert page.locator("#output script").count() == 0


def test_a_job_with_much_output_shows_its_end_and_stays_quick(site: Site) -> None:
    many = "seq 200000; echo the-end; sleep 900"
    job = site.submitted("talks-much", "-G", "1", "--", "sh", "-c", many)
    page = site.at(f"/jobs/{job}")
    page.locator("#output", has_text="the-end").wait_for()
    assert len(page.locator("#output").inner_text()) < 200_000


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
    site.submitted("after-the-restart")
    page.get_by_text("after-the-restart").wait_for(timeout=2 * PATIENCE_MS)


def test_a_lost_network_is_told_and_the_page_stays(site: Site) -> None:
    page = site.at("/")
    page.context.set_offline(True)
    site.submitted("unseen")
    assert page.get_by_role("heading", name="Your jobs").is_visible()
    page.context.set_offline(False)
    page.get_by_text("unseen").wait_for(timeout=2 * PATIENCE_MS)


def test_a_link_that_was_used_opens_nothing(site: Site) -> None:
    link = site.server.new_link()
    first, second = site.browser.new_context(), site.browser.new_context()
    first.new_page().goto(link)
    page = second.new_page()
    page.goto(link)
    assert "has been used" in page.locator("main").inner_text()
    assert second.cookies() == []


def test_a_made_up_cookie_opens_nothing(site: Site) -> None:
    cookies = [dict(one, value="A" * len(one["value"])) for one in site.state["cookies"]]
    page = site.browser.new_context(storage_state={"cookies": cookies, "origins": []}).new_page()
    page.goto(f"{site.base}/jobs")
    page.get_by_text("nobody is signed in here").wait_for()
    assert "train-0" not in page.content()


def test_no_script_can_read_the_cookie(site: Site) -> None:
    page = site.at("/")
    assert page.evaluate("document.cookie") == ""
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Lax")


def test_signing_out_ends_the_session_in_every_tab_and_for_a_stolen_cookie(site: Site) -> None:
    state = site.own_session()
    page, thief = site.page(state), site.page(state)
    page.goto(f"{site.base}/")
    other = page.context.new_page()
    other.goto(f"{site.base}/nodes")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_text("nobody is signed in here").wait_for()
    other.reload()
    other.get_by_text("nobody is signed in here").wait_for()
    thief.goto(f"{site.base}/")
    thief.get_by_text("nobody is signed in here").wait_for()


@pytest.mark.parametrize("number", ["99", "0", "-1", "1e9", "../nodes", "<b>1</b>", "9" * 400])
def test_a_number_of_no_job_is_refused_in_words(site: Site, number: str) -> None:
    page = site.page()
    answer = page.goto(f"{site.base}/jobs/{number.replace('/', '%2F')}")
    assert answer.status in (400, 404)
    assert page.locator("h1").inner_text()
    assert page.locator("main b").count() == 0


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "[::1]"])
def test_another_host_name_gets_no_page(site: Site, host: str) -> None:
    """A name that somebody else lets lead to this address."""
    line = http.client.HTTPConnection(urlsplit(site.base).netloc, timeout=PATIENCE_MS / 1000)
    cookie = "; ".join(f"{one['name']}={one['value']}" for one in site.state["cookies"])
    line.request("GET", "/", headers={"Host": host, "Cookie": cookie, "Accept": "text/html"})
    answer = line.getresponse()
    assert answer.status == 403
    assert "train-0" not in answer.read().decode()
    line.close()


def test_a_change_without_the_token_of_the_page_is_refused(site: Site) -> None:
    page = site.at("/jobs/1")
    said = page.evaluate(
        "fetch('/api/dlq.v1.JobService/CancelJob', {method: 'POST', body: '{\"jobId\": \"1\"}',"
        " headers: {'content-type': 'application/json'}}).then((answer) => answer.status)"
    )
    assert said == 403


def test_a_script_that_slips_in_does_not_run(site: Site) -> None:
    page = site.at("/")
    page.evaluate(
        "(() => { const one = document.createElement('script');"
        " one.textContent = 'window.slipped = true'; document.body.append(one); })()"
    )
    assert page.evaluate("window.slipped") is None
    policies = [fault for fault in site.faults if "Content Security Policy" in fault]
    assert policies
    site.faults.clear()


def test_a_server_that_hangs_is_told_as_lost(site: Site) -> None:
    page = site.page()
    page.add_init_script(HASTY)
    page.goto(f"{site.base}/jobs")
    page.locator("h1", has_text="Queue").wait_for()
    page.route("**/jobs", lambda _route: None)
    page.evaluate("window.hasty = true")
    page.evaluate("document.dispatchEvent(new Event('dlq:renew'))")
    page.locator("#line", has_text="no line to the server").wait_for()
