"""The GPU map in a real browser: it draws what is in view, goes by the keyboard, and stays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.browser_site import HOSTILE, SERIOUS, Site

pytestmark = pytest.mark.browser
NODES, GPUS = 1_024, 8


def a_piece() -> str:
    """The data of a large cluster, with hostile names in it."""
    leases = [
        [str(job), HOSTILE, "vision", "running", "promised", 2_000, 4_000, 8]
        for job in range(NODES)
    ]
    nodes = [
        [f"gpu{node:04}", "up", "", "", "h100", list(range(GPUS)), "uuihfwcu",
         [90, 5, 0, -1, -1, -1, -1, 50], [node, node, node, node, -1, -1, -1, node]]
        for node in range(NODES)
    ]  # fmt: skip
    return json.dumps({"now": 1_000, "nodes": nodes, "leases": leases, "next": None})


def drawn(page: Any) -> dict[str, Any]:
    """The size of the drawing, and how much of it is not empty."""
    found: dict[str, Any] = page.evaluate(
        "(() => { const canvas = document.querySelector('#map canvas');"
        " const all = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;"
        " let full = 0; for (let i = 3; i < all.length; i += 4) if (all[i]) full += 1;"
        " const map = document.getElementById('map').clientHeight;"
        " return {high: canvas.height, map, full}; })()"
    )
    return found


def large(site: Site, **settings: Any) -> Any:
    page = site.page(**settings)
    page.route("**/gpus/map.json*", lambda route: route.fulfill(
        body=a_piece(), content_type="application/json", headers={"etag": '"x"'}))  # fmt: skip
    page.goto(f"{site.base}/gpus")
    page.wait_for_selector(f"#map[data-nodes='{NODES}'][data-drawn]")
    return page


@pytest.mark.short
def test_the_map_draws_the_cluster_and_tells_a_gpu_by_the_keyboard(site: Site) -> None:
    job = site.submitted("on-the-map")
    page = site.at("/gpus")
    page.wait_for_selector("#map[data-nodes='2'][data-drawn]")
    assert drawn(page)["full"] > 0
    page.locator("#map canvas").focus()
    page.keyboard.press("ArrowRight")
    page.get_by_text("n1 GPU 0").wait_for()
    page.keyboard.press("ArrowRight")
    page.get_by_text("n1 GPU 1").wait_for()
    assert job
    page.locator("#owner").select_option("2")
    assert site.findings(page, SERIOUS) == []


def test_a_thousand_nodes_draw_only_what_is_in_view(site: Site) -> None:
    page = large(site, viewport={"width": 1200, "height": 800})
    first = drawn(page)
    assert first["map"] > 2 * first["high"]
    page.evaluate("scrollTo(0, document.body.scrollHeight / 2)")
    page.wait_for_timeout(200)
    second = drawn(page)
    assert second["high"] == first["high"]
    assert second["full"] > 0
    site.picture(page, "gpus-large")
    page.locator("#map canvas").focus()
    page.keyboard.press("ArrowRight")
    page.get_by_text("gpu0000 GPU 0").wait_for()
    assert HOSTILE in page.locator("#spot").inner_text()
    assert page.locator("#main img").count() == 0


def test_a_large_map_fits_a_narrow_dark_screen(site: Site) -> None:
    page = large(site, viewport={"width": 360, "height": 640}, color_scheme="dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    site.picture(page, "gpus-large-dark")


def test_a_lost_line_keeps_the_map_and_says_so(site: Site) -> None:
    page = large(site)
    page.route("**/gpus/map.json*", lambda route: route.abort())
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.get_by_text("no newer map comes").wait_for()
    assert page.locator("#map").get_attribute("data-nodes") == str(NODES)


def test_the_map_comes_once_the_first_node_has_joined(site: Site) -> None:
    """The page of an empty cluster has no map, and is read anew when something happens."""
    page = site.page()
    empty = '<main id="main" data-after="-1"><p class="empty">No node has joined.</p></main>'
    first = [True]

    def without_nodes(route: Any) -> None:
        answer = route.fetch()
        body = answer.text()
        if first.pop() if first else False:
            begin, end = body.index("<main"), body.index("</main>") + len("</main>")
            body = body[:begin] + empty + body[end:]
        route.fulfill(response=answer, body=body)

    page.route("**/gpus", without_nodes)
    page.goto(f"{site.base}/gpus")
    page.get_by_text("No node has joined").wait_for()
    site.submitted("stirs")
    page.wait_for_selector("#map[data-nodes='2'][data-drawn]")


def test_a_little_scrolling_draws_nothing_and_much_of_it_ends_sharp(site: Site) -> None:
    """A quarter of a window is drawn ahead. A far scroll draws coarsely, and finely at its end."""
    page = large(site, viewport={"width": 1200, "height": 800}, device_scale_factor=2)
    top = page.evaluate("document.getElementById('map').getBoundingClientRect().top")
    page.evaluate(f"scrollTo(0, {top})")
    page.wait_for_selector("#map[data-scale='2']")
    page.evaluate("document.getElementById('map').dataset.drawn = 'before'")
    page.evaluate("scrollBy(0, 60)")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert page.locator("#map").get_attribute("data-drawn") == "before"
    page.evaluate(
        "(() => { const map = document.getElementById('map'); window.scales = [];"
        " new MutationObserver(() => window.scales.push(map.dataset.scale))"
        ".observe(map, {attributes: true, attributeFilter: ['data-scale']}); })()"
    )
    page.evaluate("scrollBy(0, 900)")
    page.wait_for_selector("#map[data-scale='2']:not([data-drawn='before'])")
    assert page.evaluate("window.scales[0]") == "1"
    assert drawn(page)["full"] > 0
