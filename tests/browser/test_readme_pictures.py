"""The pictures of README.md, from the cluster of `make demo-web`: `make browser PICTURES=1`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from support.browser_site import FLAGS, ROOT, chromium
from support.palette_png import with_palette

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif("PICTURES" not in os.environ, reason="make browser PICTURES=1 takes them"),
]
FOLDER = ROOT / "docs/pictures"
WIDTH = 1180
MOST_BYTES = 120_000
SETTLED_MS = 25_000  # until starts are foreseen and a server is lent


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A page that has signed in, once the demo's jobs do all that they will."""
    from playwright.sync_api import sync_playwright

    place = tmp_path_factory.mktemp("demo")
    demo = subprocess.Popen(
        [sys.executable, ROOT / "examples/demo/page.py"], text=True, stderr=subprocess.PIPE,
        env=os.environ | {"TMPDIR": str(place)}, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert demo.stderr is not None
    found = re.search(r"open (http://\S+)", demo.stderr.readline())
    assert found is not None
    try:
        with sync_playwright() as started:
            browser = started.chromium.launch(executable_path=chromium(), args=list(FLAGS))
            page = browser.new_page(viewport={"width": WIDTH, "height": 600}, timezone_id="UTC")
            page.goto(found[1])
            page.wait_for_timeout(SETTLED_MS)
            yield page
            browser.close()
    finally:
        demo.send_signal(signal.SIGINT)
        demo.wait()
        demo.stderr.close()


@pytest.mark.parametrize(
    ("name", "path", "height"),
    [("queue", "/jobs", 940), ("gpus", "/gpus", 470), ("job", "/jobs/4", 640)],
)
def test_a_picture_of_a_page(page: Any, name: str, path: str, height: int) -> None:
    origin = re.match(r"http://[^/]+", page.url)
    assert origin is not None
    page.set_viewport_size({"width": WIDTH, "height": height})
    page.goto(f"{origin[0]}{path}")
    page.wait_for_timeout(1_500)
    small = with_palette(page.screenshot())
    assert len(small) < MOST_BYTES
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.png").write_bytes(small)


def test_the_readme_shows_them(page: Any) -> None:
    text = (ROOT / "README.md").read_text()
    shown = re.findall(r"!\[[^\]]{20,}\]\((docs/pictures/[a-z]+\.png)\)", text)
    assert sorted(shown) == sorted(str(one.relative_to(ROOT)) for one in FOLDER.glob("*.png"))
