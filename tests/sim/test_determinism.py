"""Same trace, settings and seed give the same bytes, whatever the process's hash seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from support.extent import some

TRACE = Path(__file__).parents[1] / "data" / "traces" / "tiresias_60_job.csv"
COMMAND = "from dlq_simulator.command import simulate; simulate()"
ARGUMENTS = (
    "--cluster", "2x4", "--json", "--seed", "7", "--set", "promote_knob=8",
    "--policy", "fifo", "--policy", "best-effort", "--policy", "tiresias-las", "--policy", "srtf",
    "--set", "know=profiled",
)  # fmt: skip


def run(hash_seed: str, folder: Path) -> tuple[str, list[bytes]]:
    """The JSON without `timing`, re-serialised byte for byte, and the job files."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, TRACE, *ARGUMENTS, "--jobs-out", folder / "jobs.csv"],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        check=True,
        capture_output=True,
        text=True,
    )
    document = json.loads(done.stdout)
    for policy in document["policies"]:
        del policy["timing"]
    return json.dumps(document), [path.read_bytes() for path in sorted(folder.iterdir())]


def test_hash_seeds_change_no_byte(tmp_path: Path) -> None:
    first = run("0", tmp_path / "0")
    assert len(first[1]) == 4
    for hash_seed in some(("4711", "1"), 1):
        assert run(hash_seed, tmp_path / hash_seed) == first
