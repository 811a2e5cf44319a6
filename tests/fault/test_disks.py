"""Bad disks: nothing acknowledged is silently lost or other (`make disks N=300 SEED=1`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

from dlq_client.jobs import Jobs
from dlq_client.queues import Queues
from support.disk_campaign import AT_REST, KINDS, OTHERS_AT_WORK, STALL_S, Campaign
from support.fake_clock import SeededIds
from support.harness import Daemons
from support.ledger_clients import drain, load
from support.proofs import proved
from support.waiting import wait_until

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
    kinds = ("failing calls", "database", "log", "failing reads", "stalls", "shipped")
    Campaign(tmp_path, library(tmp_path)).run(kinds, 12, 2)


@pytest.mark.long("unit/nodeagent/state/test_agent_journal.py")
@pytest.mark.parametrize("kind", OTHERS_AT_WORK)
def test_the_other_writers_go_on_when_their_disk_is_well(tmp_path: Path, kind: str) -> None:
    Campaign(tmp_path, library(tmp_path)).run([kind], 8, 3)


@pytest.mark.torture
def test_a_campaign(tmp_path: Path) -> None:
    kinds = [*KINDS, "failing calls", "failing calls", "database", "log"]
    found = Campaign(tmp_path, library(tmp_path)).run(kinds, N, SEED)
    assert found.total() == N
    proved("bad disks", injections=N, seed=SEED, false_acks=0, **dict(sorted(found.items())))


@pytest.mark.torture
def test_a_master_whose_disk_stands_still_loses_nothing(tmp_path: Path) -> None:
    """All that is asked meanwhile is answered when the disk is back, and jobs go on."""
    told, daemons = tmp_path / "stalls", Daemons(tmp_path, ("n1", "n2"))
    stall = {
        "LD_PRELOAD": library(tmp_path),
        "DISK_FILE": "dlq.db-wal",
        "DISK_FAULT": "stall",
        "DISK_AFTER": "60",
        "DISK_STALL_MS": str(round(STALL_S * 1000)),
        "DISK_TOLD": str(told),
    }
    with daemons.up():
        daemons.stop("master")
        daemons.start("master", **stall)
        daemons.wait_for("master")
        with load(daemons, SEED):
            wait_until(told.exists, what="the disk stands still", timeout_s=120.0)
            threading.Event().wait(STALL_S)
            began_s = time.monotonic()
            with daemons.connect() as line:
                key = SeededIds(SEED).request_id()
                Jobs(line).submit(daemons.ledger_job(0.0, 0), request_id=key, validate_only=True)
                Queues(line).cluster()
            answered_s = time.monotonic() - began_s
        found = drain(daemons)
        assert daemons.is_alive("master")
    assert found["more_than_one_attempt"] == 0
    proved(
        "a disk that stands still",
        seconds=STALL_S,
        answered_after_s=round(answered_s, 1),
        **found,
    )
