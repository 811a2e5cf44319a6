"""The wall in a browser that has not signed in: it shows the map until it is revoked."""

from __future__ import annotations

from typing import Any

import pytest

from dlq_web.door.wall import WallToken
from support.browser_site import HASTY, Site

pytestmark = pytest.mark.browser
AGAIN = "dispatchEvent(new HashChangeEvent('hashchange'))"


def token_of(site: Site) -> WallToken:
    """The token beside the file for programs."""
    (file,) = site.daemons.root.rglob("web.json")
    return WallToken(file.parent)


def wall(site: Site, token: str, **settings: Any) -> Any:
    page = site.page(state={"cookies": [], "origins": []}, **settings)
    page.goto(f"{site.base}/wall#{token}")
    return page


def test_a_wall_shows_the_map_without_names_until_it_is_revoked(site: Site) -> None:
    token = token_of(site)
    page = wall(site, token.made(), viewport={"width": 1280, "height": 720})
    page.wait_for_selector("#wall[data-nodes='2'][data-drawn]")
    assert page.locator("[data-use='f']").inner_text().isdigit()
    site.picture(page, "wall")
    assert site.findings(page) == []
    for name in ("n1", "root", "train-0"):
        assert name not in page.content()
    token.revoke()
    page.evaluate(AGAIN)
    page.get_by_text("this wall is not open any more").wait_for()
    assert page.locator("#wall").get_attribute("data-nodes") == "0"


def test_a_wall_without_its_token_says_so(site: Site) -> None:
    page = wall(site, "", viewport={"width": 360, "height": 640}, color_scheme="dark")
    page.get_by_text("this address lacks its token").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_wall_keeps_its_last_map_while_nobody_answers(site: Site) -> None:
    page = wall(site, token_of(site).made())
    page.wait_for_selector("#wall[data-nodes='2'][data-drawn]")
    page.route("**/wall/map.json*", lambda route: route.fulfill(status=503, body="{}"))
    page.evaluate(AGAIN)
    page.get_by_text("no newer map since").wait_for()
    assert page.locator("#wall").get_attribute("data-nodes") == "2"


def test_a_wall_says_that_its_map_is_old_when_the_server_hangs(site: Site) -> None:
    page = site.page(state={"cookies": [], "origins": []})
    page.add_init_script(HASTY)
    page.goto(f"{site.base}/wall#{token_of(site).made()}")
    page.wait_for_selector("#wall[data-nodes='2'][data-drawn]")
    page.route("**/wall/map.json*", lambda _route: None)
    page.evaluate("window.hasty = true")
    page.evaluate(AGAIN)
    page.get_by_text("no newer map since").wait_for()
