"""Bad disks: nothing acknowledged is silently lost or other (`make disks N=300 SEED=1`)."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from support.disk_campaign import AT_REST, KINDS, Campaign
from support.proofs import proved

N = int(os.environ.get("N", "300"))
SEED = int(os.environ.get("SEED", "1"))
SHIM = Path(__file__).parents[1] / "support" / "failing_disk.c"


def library(place: Path) -> str:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    made = place / "failing_disk.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", made, SHIM], check=True)
    return str(made)


def test_one_injection_of_each_kind_at_rest(tmp_path: Path) -> None:
    found = Campaign(tmp_path).run(AT_REST, len(AT_REST), 1)
    assert found.total() == len(AT_REST)


@pytest.mark.long("unit/master/store/test_store_disk.py")
def test_twelve_injections_of_all_kinds(tmp_path: Path) -> None:
    kinds = ("failing calls", "database", "log", "failing calls", "exit record", "shipped")
    Campaign(tmp_path, library(tmp_path)).run(kinds, 12, 2)


@pytest.mark.torture
def test_a_campaign(tmp_path: Path) -> None:
    kinds = [*KINDS, "failing calls", "failing calls", "database", "log"]
    found = Campaign(tmp_path, library(tmp_path)).run(kinds, N, SEED)
    assert found.total() == N
    proved("bad disks", injections=N, seed=SEED, false_acks=0, **dict(sorted(found.items())))
