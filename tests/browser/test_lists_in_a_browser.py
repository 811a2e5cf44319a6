"""Lists in a browser: a heading orders the queue on the server, and the search finds things."""

from __future__ import annotations

import re

import pytest

from support.browser_site import Site

pytestmark = pytest.mark.browser


@pytest.mark.short
def test_a_heading_orders_the_queue_by_keyboard_and_the_page_stays_so(site: Site) -> None:
    jobs = [site.submitted("order-me", "-G", str(gpus), "--hold", "--", "sleep", "1")
            for gpus in (2, 1)]  # fmt: skip
    page = site.at("/jobs?q=order-me")
    assert page.locator("#total").inner_text() == "2 of 2"

    def order() -> list[str]:
        links = page.locator("tbody td a[href^='/jobs/']")
        return [one.split("/")[-1] for one in links.evaluate_all("as => as.map((a) => a.href)")]

    assert order() == jobs
    heading = page.get_by_role("columnheader", name="GPUs")
    heading.get_by_role("link").focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("order=gpus"))
    assert order() == jobs[::-1]
    assert heading.get_attribute("aria-sort") == "ascending"
    page.get_by_role("button", name="Show").click()  # the form keeps the order
    page.wait_for_url(re.compile("order=gpus"))
    assert order() == jobs[::-1]


def test_a_search_with_several_meanings_shows_them(site: Site) -> None:
    for _ in range(2):
        site.submitted("find-me", "-G", "1", "--hold", "--", "sleep", "1")
    page = site.at("/")
    page.get_by_role("search").get_by_role("textbox").fill("find-me")
    page.get_by_role("search").get_by_role("textbox").press("Enter")
    page.get_by_role("heading", name="Jobs (2 of 2)").wait_for()
