"""`make demo-ha` shows that no job notices a lost master or database, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.postgres_site import need_postgres

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long("unit/examples/test_demo_servers.py", "integration/test_masters.py"),
]
DEMO = Path(__file__).resolve().parents[2] / "examples/demo/ha.py"


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory with a short name, for the sockets of daemons and servers."""
    with tempfile.TemporaryDirectory(prefix="dlqdh", dir="/tmp") as name:
        Path(name).chmod(0o711)  # as /tmp is to the account of the servers
        yield Path(name)


def test_no_job_notices_and_nothing_is_left(short_path: Path) -> None:
    need_postgres()
    done = subprocess.run(
        [sys.executable, DEMO], env=os.environ | {"TMPDIR": str(short_path)}, text=True,
        stdin=subprocess.DEVNULL, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    proved = [line for line in done.stdout.splitlines() if line.startswith("proved ")]
    assert len(proved) == 7, done.stdout
    assert "no job noticed" in done.stdout
    assert list(short_path.iterdir()) == []
