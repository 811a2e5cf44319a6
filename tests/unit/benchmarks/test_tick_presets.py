"""`benchmarks.planning.tick` runs under each preset: the command, as `make bench` calls it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dlq_master.policy.registry.presets import PRESETS

ROOT = Path(__file__).resolve().parents[3]


def test_a_tick_is_measured_under_fifo() -> None:
    _measured("fifo")


@pytest.mark.long("unit/benchmarks/test_tick_presets.py::test_a_tick_is_measured_under_fifo")
@pytest.mark.parametrize("policy", [name for name in PRESETS if name != "fifo"])
def test_a_tick_is_measured_under_each_preset(policy: str) -> None:
    _measured(policy)


def _measured(policy: str) -> None:
    words = ["benchmarks.planning.tick", "--queued", "50,100", "--policy", policy, "--json"]
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert any("completion" in figure["name"] for figure in json.loads(done.stdout)["figures"])
