"""The master's disk is full: submissions are refused first, ends are taken as long as it goes, and
when nothing can be written any more it leaves, having told nobody a lie."""

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from dlq_common.errors import TryAgain, Unavailable
from support.harness import Daemons
from support.waiting import wait_until

SIZE = 40 << 20
FLOOR = 16 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The directory of a cluster whose master has a small disk."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    master = tmp_path / "master"
    master.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=755", "tmpfs", str(master)],
        capture_output=True,
        text=True,
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount: {mounted.stderr.strip()}")
    yield tmp_path
    subprocess.run(["umount", "-l", str(master)], check=True)


def _fill(directory: Path, leave: int) -> Path:
    """Take all but `leave` bytes of the disk."""
    free = os.statvfs(directory)
    ballast = directory / "ballast"
    ballast.write_bytes(bytes(max(0, free.f_bavail * free.f_bsize - leave)))
    return ballast


@pytest.mark.torture
def test_a_nearly_full_disk_refuses_submissions_takes_ends_and_recovers(small_disk: Path) -> None:
    daemons = Daemons(small_disk, ("n1",), settings=f'[store]\nfree_disk_floor = "{FLOOR}B"\n')
    with daemons.up(), daemons.connect(patience_s=5.0) as line:
        jobs = Jobs(line)
        short = jobs.submit(daemons.ledger_job(4.0, 3)).job.job_id
        long = jobs.submit(daemons.ledger_job(50.0, 0)).job.job_id
        ballast = _fill(small_disk / "master", FLOOR - (2 << 20))
        wait_until(lambda: _refused(daemons, jobs), what="a submission is refused")
        wait_until(lambda: jobs.get(short).job.HasField("end_time"), what="an end is taken")
        assert jobs.get(short).job.exit_code == 3
        assert jobs.cancel(long, kill=True).state == job_pb2.JOB_STATE_CANCELLED
        ballast.unlink()
        wait_until(lambda: not _refused(daemons, jobs), what="submissions are taken again")


def _refused(daemons: Daemons, jobs: Jobs) -> bool:
    # Slowly: a commit writes a dozen pages, and the disk is looked at once a second.
    threading.Event().wait(0.2)
    try:
        jobs.submit(daemons.ledger_job(0.0, 0))
    except TryAgain:
        return True
    return False


@pytest.mark.torture
def test_a_full_disk_ends_the_master_and_what_was_acknowledged_is_there_with_room(
    small_disk: Path,
) -> None:
    daemons = Daemons(small_disk, ("n1",), settings='[store]\nfree_disk_floor = "0B"\n')
    with daemons.up(), daemons.connect(patience_s=0.2) as line:
        jobs = Jobs(line)
        ballast = _fill(small_disk / "master", 256 << 10)
        accepted = _submit_until_unavailable(daemons, jobs)
        daemons.wait_for_failure("master")
        _check_its_last_words(daemons.log("master"))
        ballast.unlink()
        daemons.start("master")
        daemons.wait_for("master")
        with daemons.connect() as again:
            known = {job.job_id for job in Jobs(again).list(user="*").jobs}

    assert accepted
    assert set(accepted) <= known
    assert len(known) <= len(accepted) + 1, "one may have been written and not acknowledged"


def _check_its_last_words(log: str) -> None:
    """One line for people and machines, and no story of our code."""
    assert "Traceback" not in log, log[-3_000:]
    told = [json.loads(line) for line in log.splitlines() if "commit_failed" in line]
    assert [(each["level"], "SQLITE_" in each["error"]) for each in told] == [("error", True)]


def _submit_until_unavailable(daemons: Daemons, jobs: Jobs) -> list[str]:
    accepted: list[str] = []
    spec = daemons.ledger_job(0.0, 0)
    spec.hold = True
    spec.environment["PADDING"] = "x" * 20_000
    while True:
        try:
            accepted.append(jobs.submit(spec).job.job_id)
        except Unavailable:
            return accepted
