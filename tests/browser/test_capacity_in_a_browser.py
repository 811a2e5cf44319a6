"""A reclaim by its token, a stale one, a question that is cancelled, and the report by itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dlq_simulator.command import simulate
from support.browser_site import Server, Site
from support.lender import Lender
from support.waiting import wait_until

pytestmark = pytest.mark.browser
TRACE = Path(__file__).parents[1] / "data" / "traces" / "tiresias_60_job.csv"


@pytest.fixture(scope="module")
def lending_site(
    whole_site: Site, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Site, Lender]]:
    """A cluster with a server of the inference side, and its web server in the same browser."""
    lender = Lender(tmp_path_factory.mktemp("lending"), ("i1",))
    with ThreadPoolExecutor(1) as beside, ExitStack() as stack:
        # An agent joins in a loop of its own, and this thread has the browser's.
        beside.submit(stack.enter_context, lender.up()).result()
        lender.say("i1")
        server = Server(lender)
        context = whole_site.browser.new_context()
        context.new_page().goto(server.link)
        yield Site(lender, server, whole_site.browser, context.storage_state()), lender
        server.end()


def test_a_stale_plan_is_refused_and_the_new_one_is_done_by_its_token(
    lending_site: tuple[Site, Lender],
) -> None:
    site, lender = lending_site
    lender.said("admin", "loan", "i1", "--wait", "60s")
    job = site.submitted("on-a-lent-server")
    wait_until(lambda: lender.server("i1")["attempts"], what="the job runs on i1")
    page = site.at("/loans")
    page.get_by_label("How many").fill("1")
    page.get_by_role("button", name="Show what it costs").click()
    page.get_by_role("region", name="Jobs that it hits").wait_for()
    assert page.get_by_text("no choice preempts fewer").is_visible()
    site.picture(page, "reclaim")
    assert site.findings(page) == []
    lender.said("cancel", "--kill", "--wait", "-y", job)
    wait_until(lambda: not lender.server("i1")["attempts"], what="i1 is empty")
    page.get_by_role("button", name="Take back exactly these").click()
    page.get_by_text("nothing was taken back:", exact=False).wait_for()
    page.get_by_text("No job is on them.").wait_for()
    assert lender.server("i1")["state"] == "lent"
    page.get_by_role("button", name="Take back exactly these").click()
    page.wait_for_url("**/loans")
    wait_until(lambda: lender.server("i1")["state"] == "away", what="i1 is back")
    assert site.tidy() == []


def test_an_answer_that_is_lost_is_asked_for_again_with_the_same_key(
    lending_site: tuple[Site, Lender],
) -> None:
    site, lender = lending_site
    lender.said("admin", "loan", "i1", "--wait", "60s")
    page = site.at("/loans?hosts=i1")
    keys: list[str] = []

    def lose(route: Any) -> None:
        keys.append(route.request.headers["idempotency-key"])
        keys.append(json.loads(route.request.post_data)["token"])
        route.abort()

    page.route("**/ReclaimServers", lose)
    for _ in range(2):
        page.get_by_role("button", name="Take back exactly these").click()
        page.get_by_text("it happens once", exact=False).wait_for()
        page.evaluate("document.getElementById('told').textContent = ''")
    assert keys == [f"reclaim-{keys[1]}", keys[1]] * 2
    lender.said("admin", "reclaim", "i1", "--wait", "60s")
    assert site.tidy() == []


def test_what_if_is_asked_by_the_keyboard_and_says_before_and_after(site: Site) -> None:
    page = site.at("/what-if")
    page.get_by_label("Nodes come").fill("2x8")
    page.get_by_label("jobs come").fill("8:1h:4h")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Now, and then").wait_for(timeout=90_000)
    page.get_by_text("dlq what-if --add-nodes 2x8 --add-job 8:1h:4h").wait_for()
    page.get_by_role("cell", name="new-1").wait_for()
    site.picture(page, "what-if-answered")
    assert site.findings(page) == []
    assert page.evaluate("document.activeElement.id") == "answer"
    assert page.url.endswith("/what-if?add_nodes=2x8&add_job=8%3A1h%3A4h")


def test_a_question_to_the_twin_is_cancelled(site: Site) -> None:
    page = site.at("/what-if")
    page.route("**/what-if?*", lambda route: None)  # it is never answered
    page.get_by_label("drained").fill("n1")
    page.get_by_role("button", name="What if?").click()
    page.get_by_text("asking the twin").wait_for()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("cancelled").wait_for()
    assert page.get_by_role("button", name="Cancel").count() == 0


def test_the_report_of_the_simulator_obeys_its_own_policy_and_has_no_finding(
    whole_site: Site, tmp_path: Path
) -> None:
    report = tmp_path / "report.html"
    words = ("--policy", "fifo", "--policy", "tiresias-las", "--report", str(report))
    assert CliRunner().invoke(simulate, [str(TRACE), "--cluster", "2x4", *words]).exit_code == 0
    faults: list[str] = []
    page = whole_site.browser.new_context(
        viewport={"width": 360, "height": 640}, color_scheme="dark"
    ).new_page()
    page.on("console", lambda told: faults.append(told.text))
    page.on("request", lambda request: faults.append(request.url))
    page.goto(report.as_uri())
    assert faults == [report.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 23)"
    page.get_by_text("In numbers").first.click()
    whole_site.picture(page, "simulated-report")
    assert whole_site.findings(page) == []
    whole_site.tidy()
