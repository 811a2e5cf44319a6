"""Frames a second of the picture of the next hours, in a real browser, while it scrolls.

    .venv-browser/bin/python -m benchmarks.commands.lanes_frames [--bars N] [--json]

`make browser` makes that environment. The browser has no GPU here: it draws on the CPU. Goal: 50
frames a second with 10,000 bars, with lanes that can be read and with all of them on the screen.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Any

from benchmarks.support.report import Report

STATIC = Path(__file__).resolve().parents[2] / "web/dlq_web/pages/static"
ORIGIN = "http://bench.invalid"
LANES = 1_000
SECONDS = 4
HTML = """<!doctype html><link rel="stylesheet" href="/style.css">
<div class="hours"><canvas></canvas></div>
<style>.hours canvas { width: 1200px; height: 1000px; }</style>"""
SCROLL = Path(__file__).with_suffix(".js")


def main() -> None:
    """Draw, scroll, count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bars", type=int, default=10_000)
    report = Report.begin("commands.lanes_frames", parser)
    drawn = picture(report.options.bars)
    for words, tall in (("lanes of 18 pixels", 18), ("all lanes at once", 1)):
        told = scrolled(drawn, tall)
        name = f"{report.options.bars} bars, {words}"
        report.figure(f"{name}: frames", told["frames"], "/s", at_least=50)
        report.figure(f"{name}: a drawing, on the script's thread", told["draw"], "ms")
    report.end()


def picture(bars: int) -> dict[str, Any]:
    """Bars of all kinds, as the server tells them: none wider than its lane is long."""
    dice = random.Random(1)
    told = []
    for number in range(bars):
        begin = dice.randrange(1_100)
        kind = dice.choice(("runs", "runs", "starts", "promised", "reserved"))
        edges = (begin, begin + dice.randint(1, 100), max(0, begin - 20), begin + 20)
        told.append([number % LANES, kind, *edges, f"{number} train (alice), 8 GPUs", str(number)])
    names = [f"lane {number}" for number in range(LANES)]
    return {
        "from": 1_795_000_000, "span": 46_800, "pixels": 1_200, "now": 92, "lanes": names,
        "left_out": 0, "bars": told,
    }  # fmt: skip


def scrolled(drawn: dict[str, Any], tall: int) -> dict[str, float]:
    """Frames a second, and the milliseconds of a drawing."""
    from playwright.sync_api import sync_playwright

    from support.browser_site import FLAGS, chromium

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1240, "height": 1040})
        page.route(f"{ORIGIN}/**", _serve)
        page.goto(f"{ORIGIN}/")
        told: dict[str, float] = page.evaluate(
            SCROLL.read_text(), {"picture": drawn, "tall": tall, "seconds": SECONDS}
        )
        browser.close()
    return told


def _serve(route: Any) -> None:
    name = route.request.url.rpartition("/")[2]
    if not name:
        route.fulfill(body=HTML, content_type="text/html")
        return
    kind = "text/css" if name.endswith(".css") else "text/javascript"
    route.fulfill(body=(STATIC / name).read_text(), content_type=kind)


if __name__ == "__main__":
    main()
