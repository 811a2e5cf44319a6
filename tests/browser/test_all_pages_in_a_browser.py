"""What holds for every page: it can be read by everybody, at any size, with a keyboard alone."""

from __future__ import annotations

import pytest

from support.browser_site import Site
from support.web_pages import page_paths

pytestmark = pytest.mark.browser
# Jobs in other states than the first one, and one that is not there.
MORE = ["/jobs/4", "/jobs/7", "/jobs/99"]
PAGES = [*page_paths(), *MORE]
DRAWN_MS = 300  # until a canvas has been drawn
NARROW, ZOOMED = {"width": 360, "height": 640}, {"width": 640, "height": 400}


def name_of(path: str) -> str:
    """The name of its picture."""
    return path.strip("/").replace("/", "-") or "me"


@pytest.mark.short
@pytest.mark.parametrize("path", PAGES)
def test_a_page_has_no_serious_finding_and_its_picture_is_kept(site: Site, path: str) -> None:
    page = site.at(path)
    page.wait_for_timeout(DRAWN_MS)
    site.picture(page, name_of(path))
    assert site.findings(page) == []


@pytest.mark.parametrize("path", PAGES)
def test_a_dark_and_narrow_page_can_be_read_without_scrolling_sideways(
    site: Site, path: str
) -> None:
    page = site.at(path, viewport=NARROW, color_scheme="dark", reduced_motion="reduce")
    page.wait_for_timeout(DRAWN_MS)
    site.picture(page, f"{name_of(path)}-dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"]
    assert site.findings(page) == []


@pytest.mark.parametrize("path", PAGES)
def test_a_page_fits_at_twice_the_size(site: Site, path: str) -> None:
    """200 % zoom of 1280 pixels is a window of 640."""
    page = site.at(path, viewport=ZOOMED, device_scale_factor=2)
    assert page.evaluate("document.documentElement.scrollWidth") <= ZOOMED["width"]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_says_what_it_is_without_script(site: Site, path: str) -> None:
    page = site.at(path, java_script_enabled=False)
    assert page.locator("h1").count() == 1
    assert page.locator("h1").inner_text()
    assert page.title()


@pytest.mark.parametrize("path", [path for path in PAGES if path != "/jobs/99"])
def test_the_first_key_leads_past_the_navigation_and_the_focus_shows(site: Site, path: str) -> None:
    page = site.at(path)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#main"
    for _ in range(12):
        page.keyboard.press("Tab")
        shown = page.evaluate(
            "(() => { const at = document.activeElement, looks = getComputedStyle(at);"
            " return at === document.body || looks.outlineStyle !== 'none'"
            " || looks.boxShadow !== 'none'; })()"
        )
        assert shown, page.evaluate("document.activeElement.outerHTML")
