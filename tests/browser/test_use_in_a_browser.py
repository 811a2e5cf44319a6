"""Charts of the page of use are drawn from their tables, which stay for those that read by ear."""

from __future__ import annotations

import pytest

from support.browser_site import Site

pytestmark = pytest.mark.browser


def test_each_chart_is_drawn_from_the_table_below_it(site: Site) -> None:
    page = site.at("/use")
    page.wait_for_selector("figure.chart[data-drawn]")
    charts, drawn = page.locator("figure.chart"), page.locator("figure.chart[data-drawn]")
    assert charts.count() == drawn.count()
    assert drawn.count() >= 2
    assert page.locator("figure.chart + .wide table").count() == charts.count()
    full = page.evaluate(
        "[...document.querySelectorAll('figure.chart canvas')].every((one) => one.getContext('2d')"
        ".getImageData(0, 0, one.width, one.height).data.some((part) => part > 0))"
    )
    assert full
    site.picture(page, "use-whole")


def test_charts_are_drawn_anew_once_the_page_has_renewed_itself(site: Site) -> None:
    page = site.at("/use", viewport={"width": 360, "height": 640}, color_scheme="dark")
    page.wait_for_selector("figure.chart[data-drawn]")
    page.evaluate("for (const one of document.querySelectorAll('.plot')) one.remove()")
    page.evaluate("document.dispatchEvent(new Event('dlq:renewed'))")
    page.wait_for_selector("figure.chart .plot canvas")
    assert page.locator(".plot").count() == page.locator("figure.chart").count()


COUNTED = """
window.held = 0;
for (const [name, step] of [['addEventListener', 1], ['removeEventListener', -1]]) {
  window[name] = (...given) => {
    window.held += step;
    EventTarget.prototype[name].apply(window, given);
  };
}
"""


def test_a_page_that_renews_itself_for_hours_keeps_no_old_chart(site: Site) -> None:
    page = site.page()
    page.add_init_script(COUNTED)
    page.goto(f"{site.base}/use")
    page.wait_for_selector("figure.chart[data-drawn]")
    before = page.evaluate("held")
    page.evaluate("for (let i = 0; i < 5; i++) document.dispatchEvent(new Event('dlq:renewed'))")
    page.evaluate("document.querySelector('figure.chart').remove()")
    page.evaluate("document.dispatchEvent(new Event('dlq:renewed'))")
    assert page.evaluate("held") == before - 1, "each chart listens to the window once"
