"""The next hours in a browser: drawn, moved by mouse and by keyboard, with the same as a table."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from support.browser_site import Site

pytestmark = pytest.mark.browser
COLOURED = """() => { const canvas = document.querySelector('canvas');
 const dots = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
 const found = new Set();
 for (let at = 0; at < dots.length; at += 4)
   if (dots[at + 3] > 200) found.add(dots.slice(at, at + 3).join());
 return found.size; }"""


def drawn(site: Site, path: str = "/future", **settings: Any) -> Any:
    page = site.at(path, **settings)
    page.locator("#hours[data-drawn]").wait_for()
    return page


def asked(page: Any, act: Any) -> dict[str, list[str]]:
    """The query of the read that follows an act."""
    with page.expect_request(lambda request: "as=json" in request.url) as found:
        act()
    return parse_qs(urlsplit(found.value.url).query)


@pytest.mark.short
def test_it_is_drawn_and_the_table_says_the_same(site: Site) -> None:
    page = drawn(site)
    assert page.evaluate(COLOURED) > 3
    rows = page.locator("tbody tr")
    assert rows.count() >= int(page.locator("#hours").get_attribute("data-drawn"))
    assert rows.filter(has_text="runs").count() >= 3
    page.get_by_text("jobs compared").wait_for()


def test_keys_move_it_and_change_its_scale(site: Site) -> None:
    page = drawn(site)
    page.locator("canvas").focus()
    wide = asked(page, lambda: page.keyboard.press("-"))
    near = asked(page, lambda: page.keyboard.press("+"))
    assert int(wide["span"][0]) == 2 * int(near["span"][0])
    later = asked(page, lambda: page.keyboard.press("ArrowRight"))
    assert int(later["from"][0]) > int(near["from"][0])
    home = asked(page, lambda: page.keyboard.press("Home"))
    assert int(home["from"][0]) < int(later["from"][0])
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") != "CANVAS"


def test_buttons_and_the_mouse_do_the_same(site: Site) -> None:
    page = drawn(site)
    closer = asked(page, page.get_by_role("button", name="Closer").click)
    box = page.locator("canvas").bounding_box()
    page.mouse.move(box["x"] + 200, box["y"] + 300)

    def drag() -> None:
        page.mouse.down()
        page.mouse.move(box["x"] + 100, box["y"] + 300, steps=3)
        page.mouse.up()

    later = asked(page, drag)
    assert int(later["from"][0]) > int(closer["from"][0])
    page.get_by_role("button", name="Flatter").click(click_count=8)
    page.wait_for_timeout(100)
    assert page.evaluate(COLOURED) > 3


def test_a_bar_leads_to_its_job(site: Site) -> None:
    page = drawn(site)
    lane = page.locator("canvas").bounding_box()
    page.mouse.click(lane["x"] + lane["width"] / 13 + 3, lane["y"] + 28)
    page.wait_for_url("**/jobs/*")


def test_names_are_text_and_it_fits_a_narrow_dark_page(site: Site) -> None:
    page = drawn(site, "/future?by=nodes", viewport={"width": 360, "height": 640},
                 color_scheme="dark")  # fmt: skip
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.locator("main img").count() == 0
    assert site.findings(page) == []


def test_the_queue_shows_it_and_it_survives_news(site: Site) -> None:
    page = drawn(site, "/jobs")
    asked(page, page.get_by_role("button", name="Closer").click)
    site.submitted("news-for-the-queue", "-G", "8", "--hold", "--", "true")
    page.get_by_text("news-for-the-queue").wait_for()
    assert page.locator("#hours[data-drawn]").count() == 1
    page.get_by_role("link", name="The next hours").click()
    page.get_by_role("heading", name="The next hours").wait_for()
