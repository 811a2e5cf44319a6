"""`make demo-web` says an address, shows jobs of every kind there, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long("integration/test_web_pages.py", "integration/test_web_weights.py"),
]
DEMO = Path(__file__).resolve().parents[2] / "examples/demo/page.py"
PATIENCE_S = 120.0


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory with a short name, for the sockets of daemons."""
    with tempfile.TemporaryDirectory(prefix="dlqdw", dir="/tmp") as name:
        yield Path(name)


def test_it_comes_up_and_goes_with_ctrl_c(short_path: Path) -> None:
    demo = subprocess.Popen(
        [sys.executable, DEMO], env=os.environ | {"TMPDIR": str(short_path)}, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert demo.stderr is not None
    try:
        said: list[str] = []
        found = None
        while found is None and (line := demo.stderr.readline()):  # gRPC may speak before
            said.append(line)
            found = re.search(r"open (http://\S+)", line)
        assert found is not None, said
        with httpx.Client(follow_redirects=True, headers={"accept": "text/html"}) as browser:
            assert "resnet" in browser.get(found[1]).text

            def states() -> set[str]:
                jobs = browser.get(found[1].partition("/enter")[0] + "/v1/jobs").json()["jobs"]
                return {job["state"] for job in jobs}

            wait_until(
                lambda: {"running", "queued", "held", "failed"} <= states(),
                what="jobs of every kind", timeout_s=PATIENCE_S,
            )  # fmt: skip
        demo.send_signal(signal.SIGINT)
        assert demo.wait(PATIENCE_S) == 0, demo.stderr.read()
    finally:
        demo.kill()
        demo.wait()
        demo.stderr.close()
    assert list(short_path.iterdir()) == []
