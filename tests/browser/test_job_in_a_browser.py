"""The page of a job in a browser: huge output by offsets, other attempts, and the reader's zone."""

from __future__ import annotations

from typing import Any

import pytest

from support.browser_site import Site
from support.waiting import wait_until

pytestmark = pytest.mark.browser
# 2 MB, then a line of escapes, and it stays.
HUGE = (
    "seq -f 'row %07.0f' 1 170000;"
    r" printf '\033]0;title\007\033[31mred\033[0m 10%%\r99%%\r\n\342\200\256done\n';"
    " exec sleep 900"
)


@pytest.fixture
def huge(site: Site) -> Any:
    job = site.submitted("huge", "-G", "1", "--", "sh", "-c", HUGE)
    page = site.at(f"/jobs/{job}")
    page.locator("#output").get_by_text("done").wait_for()
    return page


@pytest.mark.short
def test_a_huge_output_is_read_piece_by_piece(site: Site, huge: Any) -> None:
    output = huge.locator("#output")
    assert len(output.inner_text()) < 40_000
    huge.get_by_role("button", name="Beginning").click()
    output.get_by_text("row 0000001", exact=False).wait_for()
    assert len(output.inner_text()) < 300_000
    huge.get_by_role("button", name="Later").click()
    huge.get_by_text("bytes 65536 to 131072").wait_for()
    huge.get_by_role("button", name="Earlier").focus()
    huge.keyboard.press("Enter")
    output.get_by_text("row 0000001", exact=False).wait_for()
    huge.get_by_text("bytes 0 to 65536").wait_for()
    huge.get_by_role("button", name="Newest").click()
    output.get_by_text("done").wait_for()


def test_nothing_that_a_terminal_would_obey_is_shown(site: Site, huge: Any) -> None:
    text = huge.locator("#output").inner_text()
    assert "title" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "10%" not in text
    assert "99%" in text


def test_another_attempt_and_another_rank_may_be_chosen(site: Site) -> None:
    script = "echo this is attempt $DLQ_ATTEMPT; exec sleep 900"
    job = site.submitted("twice", "-G", "1", "--", "sh", "-c", script)
    page = site.at(f"/jobs/{job}")
    page.locator("#output").get_by_text("this is attempt").wait_for()
    site.daemons.said("requeue", "-y", job)
    page.locator("#attempt").fill("1")
    page.locator("#attempt").press("Tab")
    page.evaluate("document.activeElement.blur()")  # a page renews once nobody fills in a form
    page.get_by_role("row").filter(has_text="requeue").first.wait_for()
    page.locator("#output").get_by_text("this is attempt").wait_for()
    assert page.locator("#attempt").input_value() == "1"


@pytest.mark.parametrize(("zone", "name"), [("Asia/Tokyo", "GMT+9"), ("UTC", "UTC")])
def test_instants_are_in_the_reader_s_zone(site: Site, zone: str, name: str) -> None:
    page = site.at("/jobs/1", timezone_id=zone)
    shown = page.locator("dd time").first
    has_title = "document.querySelector('dd time').title !== ''"
    wait_until(lambda: page.evaluate(has_title), what="the time has its title")
    assert shown.inner_text().endswith(name)
    assert shown.get_attribute("title").endswith("UTC")
    hours = page.evaluate(
        "(() => { const time = document.querySelector('dd time'), at = new Date(time.dateTime);"
        " return [at.getHours(), Number(time.textContent.slice(11, 13))]; })()"
    )
    assert hours[0] == hours[1]


def test_the_page_of_a_job_is_read_by_everybody(site: Site, huge: Any) -> None:
    assert site.findings(huge) == []
