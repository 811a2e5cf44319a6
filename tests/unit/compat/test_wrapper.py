"""The programs that find a Python: what they are called with reaches `dlq`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from dlq_compat.install import install

DLQ = """\
#!/bin/bash
printf '%s\\n' "$@"
declare -F say >/dev/null && say it
echo "left: $DLQ_FUNCTIONS"
"""
SAY = "() {  echo said $1;\n echo twice\n}"


@pytest.fixture
def commands(tmp_path: Path) -> Path:
    (tmp_path / "dlq").write_text(DLQ)
    (tmp_path / "dlq").chmod(0o755)
    return install(tmp_path / "slurm")


def said(commands: Path, **more: str) -> list[str]:
    """What a `dlq` prints of its words, and of a function that it may have."""
    path = f"{commands.parents[1]}:{os.environ['PATH']}"
    done = subprocess.run(
        [str(commands / "sbatch"), "a b"], env={"PATH": path, **more}, text=True,
        capture_output=True, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()


def test_functions_that_a_bash_exports_pass_through_sh(commands: Path) -> None:
    found = said(commands, **{"BASH_FUNC_say%%": SAY, "BASH_FUNC_a-b%%": "() {  :\n}"})
    assert found == ["slurm", "sbatch", "a b", "said it", "twice", "left: "]


def test_without_functions_nothing_is_added(commands: Path) -> None:
    assert said(commands, NAME="BASH_FUNC_x") == ["slurm", "sbatch", "a b", "left: "]
