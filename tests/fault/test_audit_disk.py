"""The disk of the audit is full: no change without its line, everything else goes on, and the chain
is whole.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dlq_client.jobs import Jobs
from dlq_common.errors import AuditUnavailable
from dlq_master.app import main
from support.harness import Daemons
from support.waiting import wait_until

pytestmark = pytest.mark.long(
    "unit/master/rpc/audit/test_rpc_audit_faults.py",
)

SIZE = 256 << 10  # the changes of the half second between two writes have room in it


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own for the audit; the rest of the master has room."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a small file system")
    disk, audit = tmp_path / "disk", tmp_path / "master" / "audit.jsonl"
    for directory in (disk, audit.parent):
        directory.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(disk)],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        pytest.skip(f"cannot mount: {done.stderr.strip()}")
    for file in (disk / "audit.jsonl", audit):
        file.touch(mode=0o600)
    subprocess.run(["mount", "--bind", str(disk / "audit.jsonl"), str(audit)], check=True)
    yield disk
    subprocess.run(["umount", "-l", str(audit)], check=True)
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("killed", [False, True], ids=["served on", "killed"])
def test_a_full_disk_of_the_audit_refuses_changes_and_nothing_else(
    tmp_path: Path, small_disk: Path, killed: bool
) -> None:
    daemons = Daemons(tmp_path, ("n1",))
    with daemons.up(), daemons.connect(patience_s=20.0) as line:
        jobs = Jobs(line)
        runs = jobs.submit(daemons.ledger_job(6.0, 3)).job.job_id
        ballast = _fill(small_disk)
        accepted = [runs, *_submit_until_refused(daemons, jobs)]
        assert "changes are refused: the audit log cannot be written" in _refusal(daemons)
        assert len(jobs.list(user="*").jobs) == len(accepted), "what was refused was not made"
        wait_until(lambda: jobs.get(runs).job.HasField("end_time"), what="a job ends, and is seen")
        assert jobs.get(runs).job.exit_code == 3
        if killed:
            daemons.kill("master")
        ballast.unlink()
        if killed:
            daemons.start("master")
            daemons.wait_for("master")
        accepted.append(wait_until(lambda: _try(daemons, jobs), what="changes are accepted again"))
        daemons.stop("master")

    done = _verify(daemons)
    assert done.exit_code == 0, done.output
    lines = [json.loads(one) for one in (small_disk / "audit.jsonl").read_text().splitlines()]
    made = [one for one in lines if one.get("method", "").endswith("/SubmitJob")]
    made = [one for one in made if one["decision"] in ("OK", "COMMITTED")]
    assert len(made) == len(accepted), "each change has one line, and nothing else has"
    told = {one["object"] for one in made if one["decision"] == "OK"}
    assert told <= set(accepted)
    assert killed or told == set(accepted)


def _fill(disk: Path) -> Path:
    """Take all room but what the file's last page has."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    return ballast


def _submit_until_refused(daemons: Daemons, jobs: Jobs) -> list[str]:
    accepted: list[str] = []
    while True:
        try:
            accepted.append(_held(daemons, jobs))
        except AuditUnavailable:
            return accepted


def _refusal(daemons: Daemons) -> str:
    done = daemons.dlq("submit", "--hold", "--", "true")
    assert done.code == 75, done.err
    return done.err


def _try(daemons: Daemons, jobs: Jobs) -> str:
    try:
        return _held(daemons, jobs)
    except AuditUnavailable:
        return ""


def _held(daemons: Daemons, jobs: Jobs) -> str:
    spec = daemons.ledger_job(0.0, 0)
    spec.hold = True
    return jobs.submit(spec).job.job_id


def _verify(daemons: Daemons) -> Result:
    config = str(daemons.root / "master.toml")
    return CliRunner().invoke(main, ["verify-audit", "--config", config])
