"""A master that sees of its host what its systemd unit lets it see: no /proc/sys, no /proc/meminfo
(ProcSubset=pid).
"""

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_client.jobs import Jobs
from support.harness import Daemons
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "unit/master/test_start_clock.py",
    ),
]

HIDE = "mount --make-rprivate / && mount -t proc -o subset=pid proc /proc"


def may_hide() -> bool:
    """Whether this user may mount such a /proc here."""
    script = f"{HIDE} && test ! -e /proc/sys"
    tried = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, check=False)
    return os.geteuid() == 0 and tried.returncode == 0


class HidingDaemons(Daemons):
    """Daemons whose master runs in a mount namespace with a /proc of processes alone."""

    def _command(self, name: str) -> list[str]:
        command = super()._command(name)
        if name != "master":
            return command
        return ["unshare", "-m", "sh", "-c", f"{HIDE} && exec {shlex.join(command)}"]


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    if not may_hide():
        pytest.skip("needs root, and a kernel that mounts /proc with subset=pid")
    with HidingDaemons(tmp_path, ("n1",), twin=True).up() as made:
        yield made


@pytest.mark.parametrize("environment", [{}, {"DLQ_BOOT_ID": "0123456789abcdef" * 2}])
def test_a_master_that_sees_only_processes_runs_jobs_and_begins_anew(
    daemons: Daemons, environment: dict[str, str]
) -> None:
    for _ in range(2):
        runs_a_job(daemons)
        daemons.kill("master")
        daemons.start("master", **environment)
        daemons.wait_for("master")
    assert "Traceback" not in daemons.log("master")


def runs_a_job(daemons: Daemons) -> None:
    """A job starts and ends well."""
    with daemons.connect() as line:
        jobs = Jobs(line)
        job_id = jobs.submit(daemons.ledger_job(0.1, 0)).job.job_id
        wait_until(lambda: jobs.get(job_id).job.HasField("end_time"), what="the job ends")
        assert jobs.get(job_id).job.exit_code == 0
