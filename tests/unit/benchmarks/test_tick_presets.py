"""`benchmarks.planning.tick` runs under each preset: the command, as `make bench` calls it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dlq_master.policy.registry.presets import PRESETS

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.long("unit/benchmarks/test_growth_counted.py::test_a_curve_does_not_bend")
@pytest.mark.parametrize("policy", PRESETS)
def test_a_tick_is_measured_under_each_preset(policy: str) -> None:
    words = ["benchmarks.planning.tick", "--queued", "50,100", "--policy", policy, "--json"]
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert any("completion" in figure["name"] for figure in json.loads(done.stdout)["figures"])
