"""The first page in a browser: the widest job that would start now, by the keyboard alone."""

from __future__ import annotations

import pytest

from support.browser_site import Site
from support.waiting import wait_until

pytestmark = pytest.mark.browser


@pytest.mark.short
def test_the_widest_start_now_is_asked_for_by_the_keyboard(site: Site) -> None:
    page = site.at("/", viewport={"width": 360, "height": 640})
    page.get_by_label("A job of").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("2h")
    page.keyboard.press("Enter")
    page.locator("#now").get_by_text("A job of 2h").wait_for()
    # The page has just been loaded anew: its layout may still settle. The page's rules let nobody
    # else evaluate words in it, so `wait_for_function` would fail at its second look.
    narrow = "document.documentElement.scrollWidth <= 360"
    wait_until(lambda: page.evaluate(narrow), what="the page is narrow")
    assert site.findings(page) == []


def test_a_job_that_has_failed_says_why(site: Site) -> None:
    site.submitted("fails-now", "-G", "1", "--", "sh", "-c", "exit 3")  # the newest come first
    page = site.at("/")
    row = page.get_by_role("row").filter(has_text="fails-now")
    row.get_by_text("user_error, exit 3").wait_for()
