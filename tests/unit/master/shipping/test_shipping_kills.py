"""The shipping dies by kill -9 at each of its steps: what it had reported as shipped is there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dlq_master.shipping.chain import rebuild
from dlq_master.shipping.place import Directory
from support.extent import spread
from support.shipped_site import content_of

STEPS = (
    "before_snapshot",
    "after_snapshot_written",
    "after_audit",
    "before_segment",
    "after_segment_written",
    "after_segment_name",
    "before_snapshot_name",
    "after_snapshot_name",
    "before_heartbeat",
)
# Commits and ships in turn, with a second snapshot on the way; says what is there after each cycle.
_SHIP_UNTIL_DEATH = """
import json, os, signal, sys
from pathlib import Path
from support.shipped_site import ShippedSite

root, step, left = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

def passed(here):
    global left
    left -= here == step
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

site = ShippedSite(root)
(site.state_dir / "audit.jsonl").write_text("{}\\n")
shipper = site.shipper(passed=passed)
for turn in range(5):
    site.commit(2)
    shipper.cycle()
    print(json.dumps(site.content()), flush=True)
    if turn == 2:
        shipper._chain.extent = None
"""
CASES = [
    (step, passage) for step in STEPS for passage in ((1, 2) if "snapshot" in step else (1, 3))
]


@pytest.mark.parametrize(("step", "passage"), spread(CASES, 5))
def test_what_was_reported_is_there(tmp_path: Path, step: str, passage: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SHIP_UNTIL_DEATH, str(tmp_path), step, str(passage)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    reported = [json.loads(line) for line in done.stdout.splitlines()]
    place = Directory(tmp_path / "there")
    if not reported:
        return  # nothing was promised, and the next life begins with a snapshot
    rebuild(place, tmp_path / "rebuilt.db")
    found = content_of(tmp_path / "rebuilt.db")
    assert {*reported[-1]} - {*found} <= _numbers(reported[-1])
    assert len(found) >= len(reported[-1])


def _numbers(content: list[str]) -> set[str]:
    """Lines that a later batch replaces: the number of the last one."""
    return {line for line in content if line.startswith('INSERT INTO "meta"')}
