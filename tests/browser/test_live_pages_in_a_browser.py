"""Pages renew by themselves, in every tab, and take nothing away from their reader."""

from __future__ import annotations

import re

import pytest

from support.browser_site import PATIENCE_MS, Site

pytestmark = pytest.mark.browser


@pytest.mark.short
def test_a_page_shows_what_happens_by_itself(site: Site) -> None:
    page = site.at("/")
    site.submitted("fresh-one")
    page.get_by_text("fresh-one").wait_for()


@pytest.mark.short
def test_eight_tabs_load_and_all_of_them_renew(site: Site) -> None:
    first = site.at("/")
    tabs = [first, *(first.context.new_page() for _ in range(7))]
    for tab in tabs[1:]:
        tab.goto(f"{site.base}/")
    site.submitted("for-all-tabs")
    for tab in tabs:
        tab.get_by_text("for-all-tabs").wait_for(timeout=PATIENCE_MS)


def test_the_next_tab_watches_when_the_one_that_watched_is_closed(site: Site) -> None:
    first = site.at("/")
    second = first.context.new_page()
    second.goto(f"{site.base}/")
    first.close()
    site.submitted("seen-by-the-second")
    second.get_by_text("seen-by-the-second").wait_for()


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
    site.submitted("came-meanwhile")
    page.wait_for_timeout(3000)
    assert page.get_by_text("came-meanwhile").count() == 0
    page.evaluate("getSelection().removeAllRanges()")
    page.get_by_text("came-meanwhile").wait_for()


def test_the_focus_stays_on_its_link_when_the_page_renews(site: Site) -> None:
    page = site.at("/")
    page.locator('main a[href="/jobs/1"]').first.focus()
    site.submitted("renews-the-page")
    page.get_by_text("renews-the-page").wait_for()
    assert page.evaluate("document.activeElement.getAttribute('href')") == "/jobs/1"


@pytest.mark.short
def test_a_job_is_held_and_released_by_its_buttons(site: Site) -> None:
    job = site.submitted("held-by-a-button", "-G", "8", "--hold", "--", "sleep", "900")
    page = site.at(f"/jobs/{job}")
    page.get_by_role("button", name="Release").click()
    page.get_by_role("button", name="Hold").click()
    page.get_by_role("button", name="Release").wait_for()


def test_everything_is_reached_by_the_keyboard(site: Site) -> None:
    page = site.at("/")
    job = page.locator('main a[href="/jobs/1"]').first
    job.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/1")


def test_the_search_finds_a_job_by_its_number_and_a_node_by_its_name(site: Site) -> None:
    page = site.at("/")
    for word, target in (("1", "/jobs/1"), ("n1", "/nodes/n1")):
        page.get_by_role("search").get_by_role("textbox").fill(word)
        page.get_by_role("search").get_by_role("textbox").press("Enter")
        page.wait_for_url(re.compile(re.escape(target) + "$"))
