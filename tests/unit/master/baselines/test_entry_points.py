"""Baselines are found by name, and imported only then."""

import subprocess
import sys

import pytest

from dlq_master.policy.registry.presets import PRESETS
from dlq_master.policy.registry.registry import build

BASELINES = (
    "3sigma",
    "edf",
    "edf-preemptive",
    "gandiva",
    "gandiva-elastic",
    "genie",
    "pollux",
    "themis",
    "yarn-cs",
)


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_is_built_by_its_name(name: str) -> None:
    assert name in PRESETS
    assert build(name).name == name


@pytest.mark.parametrize(("name", "imported"), [("dlq", "False"), ("themis", "True")])
def test_a_baseline_is_imported_only_when_its_name_is_asked_for(name: str, imported: str) -> None:
    program = (
        "import sys; from dlq_master.policy.registry.registry import build, PRESETS; list(PRESETS);"
        f"build({name!r}); print('dlq_baselines' in sys.modules)"
    )
    found = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert found.strip() == imported
