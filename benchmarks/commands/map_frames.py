"""Frames a second of the GPU map, in a real browser, while it scrolls.

    .venv-browser/bin/python -m benchmarks.commands.map_frames [--nodes N] [--size WxH] [--scale N]
        [--json]

`make browser` makes that environment. The browser has no GPU here: it draws on the CPU. Nodes have
8 GPUs each, all held. Goal: 30 frames a second with 1,024 nodes.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

from benchmarks.support.report import Report

ROOT = Path(__file__).resolve().parents[2]
STATIC = ROOT / "web/dlq_web/pages/static"
LOOK = ROOT / "common/dlq_common/page/static"
ORIGIN = "http://bench.invalid"
SECONDS = 4
GPUS = 8
HTML = """<!doctype html>
<link rel="stylesheet" href="/look.css"><link rel="stylesheet" href="/style.css">
<figure id="map" class="map" data-source="/map.json"></figure><p id="spot"></p>
<script type="module" src="/gpus.js"></script>"""
SCROLL = Path(__file__).with_suffix(".js")


def main() -> None:
    """Draw, scroll, count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_024)
    parser.add_argument("--size", default="1240x1040", help="of the window, in pixels of CSS")
    parser.add_argument("--scale", type=float, default=1.0, help="pixels of the device in each")
    report = Report.begin("commands.map_frames", parser)
    nodes, (width, height) = report.options.nodes, map(int, report.options.size.split("x"))
    told = scrolled(document(nodes), {"width": width, "height": height}, report.options.scale)
    report.figure(f"{nodes} nodes: frames", told["frames"], "/s", at_least=30)
    report.figure(f"{nodes} nodes: a drawing, on the script's thread", told["draw"], "ms")
    report.end()


def document(nodes: int) -> str:
    """The map as the server tells it: a job on each node, of one of fifty users."""
    dice = random.Random(1)
    leases = [
        [str(job), f"user{job % 50}", "team", "running", "promised" if job % 3 else "", 2e3, 4e3, 8]
        for job in range(nodes)
    ]
    told = []
    for node in range(nodes):
        uses, percents = "".join(dice.choices("uuuih", k=GPUS)), dice.choices(range(100), k=GPUS)
        facts = [f"gpu{node:04}", "up", "", "", "h100", list(range(GPUS)), uses, percents]
        told.append([*facts, [node] * GPUS])
    return json.dumps({"now": 1_000, "nodes": told, "leases": leases, "next": None})


def scrolled(data: str, size: Any, scale: float) -> dict[str, float]:
    """Frames a second, and the milliseconds of a drawing."""
    from playwright.sync_api import sync_playwright

    from support.browser_site import FLAGS, chromium

    def serve(route: Any) -> None:
        name = route.request.url.partition("?")[0].rpartition("/")[2]
        if name == "map.json":
            route.fulfill(body=data, content_type="application/json")
        elif name.endswith((".css", ".js")):
            kind = "text/css" if name.endswith(".css") else "text/javascript"
            folder = LOOK if name == "look.css" else STATIC
            route.fulfill(body=(folder / name).read_text(), content_type=kind)
        else:
            route.fulfill(body=HTML, content_type="text/html")

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        page = browser.new_page(viewport=size, device_scale_factor=scale)
        page.route(f"{ORIGIN}/**", serve)
        page.goto(f"{ORIGIN}/")
        page.wait_for_selector("#map[data-drawn]")
        told: dict[str, float] = page.evaluate(SCROLL.read_text(), SECONDS)
        browser.close()
    return told


if __name__ == "__main__":
    main()
