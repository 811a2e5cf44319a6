"""`make demo-many` loses and doubles no job at three clusters, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "integration/test_cli_many.py::test_the_best_offer_gets_the_job_and_every_place_has_a_reason"
    ),
]
DEMO = Path(__file__).resolve().parents[2] / "examples/demo/many.py"


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory with a short name, for the sockets of daemons."""
    with tempfile.TemporaryDirectory(prefix="dlqdm", dir="/tmp") as name:
        yield Path(name)


def test_every_job_is_there_once_and_nothing_is_left(short_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, DEMO], env=os.environ | {"TMPDIR": str(short_path), "JOBS": "6"},
        text=True, stdin=subprocess.DEVNULL, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    proved = [line for line in done.stdout.splitlines() if line.startswith("proved ")]
    assert len(proved) == 5, done.stdout
    assert "all 11 jobs completed, each once" in done.stdout
    # Others may wait at the emptied cluster too: a lot decides among equal offers.
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if line.startswith("wide-")}
    for name in ("wide-1", "wide-3"):
        assert "promised anew after its move and kept" in rows[name], done.stdout
    assert list(short_path.iterdir()) == []
