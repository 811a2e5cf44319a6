"""Orders to chosen jobs, and a job from a form, by mouse and by keyboard."""

from __future__ import annotations

import re
from typing import Any

import pytest

from support.browser_site import HOSTILE, Site

pytestmark = pytest.mark.browser


def box(page: Any, job: str) -> Any:
    return page.get_by_label(f"Choose job {job}", exact=True)


@pytest.mark.short
def test_chosen_jobs_are_released_together_and_tell_their_fate(site: Site) -> None:
    first, second = (site.submitted(f"chosen-{n}", "-G", "8", "--hold", "--", "true") for n in "ab")
    page = site.at("/")
    for job in (first, second):
        box(page, job).check()
    page.get_by_text("2 chosen").wait_for()
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_text(f"job {first}: cancelled").wait_for()
    page.get_by_text(f"job {second}: cancelled").wait_for()
    page.get_by_text(f"dlq cancel {first} {second}").wait_for()


def test_a_chosen_job_stays_chosen_when_the_page_renews(site: Site) -> None:
    job = site.submitted("kept", "-G", "8", "--hold", "--", "true")
    page = site.at("/")
    box(page, job).focus()
    page.keyboard.press("Space")
    site.submitted("makes-news", "-G", "8", "--hold", "--", "true")
    page.get_by_text("makes-news").wait_for()
    assert box(page, job).is_checked()
    assert page.evaluate("document.activeElement.value") == job


def test_no_row_moves_away_under_the_pointer(site: Site) -> None:
    page = site.at("/")
    page.locator("tbody tr").first.hover()
    page.evaluate(
        "window.moving = setInterval(() => document.querySelector('tbody tr').dispatchEvent("
        "new PointerEvent('pointermove', { bubbles: true })), 200)"
    )
    site.submitted("waits-for-the-pointer", "-G", "8", "--hold", "--", "true")
    page.wait_for_timeout(2500)
    assert page.get_by_text("waits-for-the-pointer").count() == 0
    page.evaluate("clearInterval(window.moving)")
    page.get_by_text("waits-for-the-pointer").wait_for()


def test_one_of_several_refuses_and_says_so(site: Site) -> None:
    ended = site.submitted("ends", "-G", "1", "--", "true")
    site.daemons.said("wait", ended)
    held = site.submitted("stays", "-G", "8", "--hold", "--", "true")
    page = site.at("/jobs?state=held,completed&user=")
    for job in (held, ended):
        box(page, job).check()
    page.get_by_role("button", name="Hold", exact=True).click()
    page.get_by_text("1 of 2 done").wait_for()


def test_more_than_twenty_jobs_need_their_number(site: Site) -> None:
    said = site.daemons.said("submit", "--array", "0-20", "--name", "many", "-G", "8", "--hold",
                             "--", "true")  # fmt: skip
    array = said.split()[3]
    site.jobs.append(array)
    page = site.at("/jobs?name=many&state=held&user=")
    page.get_by_label("Choose all").check()
    page.get_by_text("21 chosen").wait_for()
    page.evaluate("window.prompt = () => '20'")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_text("21 jobs would change").wait_for()
    page.evaluate("window.prompt = () => '21'")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_text("21 of 21 done").wait_for()


@pytest.mark.short
def test_a_command_is_submitted_by_the_keyboard_alone(site: Site) -> None:
    page = site.at("/submit")
    page.get_by_label("Flags, and a command").focus()
    page.keyboard.type(f"--name '{HOSTILE}' --hold -G 1 -- true")
    page.keyboard.press("Tab")
    page.keyboard.type("/tmp")
    page.get_by_role("button", name="What would happen?").focus()
    page.keyboard.press("Enter")
    page.get_by_text("The master would accept this job").wait_for()
    page.get_by_role("button", name="Submit").focus()
    page.keyboard.press("Enter")
    page.get_by_text("Submitted batch job").wait_for()
    first = page.locator("#answer").inner_text()
    job = re.search(r"job (\d+)", first)
    assert job is not None
    site.jobs.append(job[1])
    page.keyboard.press("Enter")
    page.wait_for_timeout(500)
    assert page.locator("#answer").inner_text() == first
    page.get_by_role("link", name="Its page").click()
    page.get_by_text(HOSTILE).first.wait_for()
    assert page.locator("main img").count() == 0


def test_a_file_with_a_mistake_is_told_by_its_line(site: Site) -> None:
    page = site.at("/submit", viewport={"width": 360, "height": 640})
    content = b"command: [true]\nresources:\n  gpus: -3\n"
    page.get_by_label("A file of yours").set_input_files(
        {"name": "job.yaml", "mimeType": "text/plain", "buffer": content}
    )
    page.get_by_role("button", name="Submit").click()
    page.get_by_text("job.yaml:3", exact=False).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert site.findings(page) == []
