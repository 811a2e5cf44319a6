"""The master and its disk are lost: another one is recovered from what was shipped, and no job
notices.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from dlq_master.app import main
from dlq_master.shipping.status import read_status
from support.harness import Daemons
from support.ledger_clients import Promises
from support.waiting import wait_until

pytestmark = pytest.mark.long("unit/master/test_recovering.py")

SETTINGS = """
[backup]
ca_key = "apart"

[shipping]
directory = "{there}"
every = "100ms"
same_disk = true
"""
JOBS = 6


def test_a_lost_host_costs_no_job(tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    daemons = Daemons(tmp_path, ("n1", "n2"), settings=SETTINGS.format(there=there))
    with daemons.up():
        state_dir = tmp_path / "master"
        shutil.copy(state_dir / "ca.key", tmp_path / "ca.key")
        with daemons.connect() as line:
            jobs = Jobs(line)
            known = {
                jobs.submit(daemons.ledger_job(8.0 if job % 2 else 0.5, 0)).job.job_id
                for job in range(JOBS)
            }
            wait_until(lambda: _started(tmp_path) == JOBS, what="all of them run")
        promises = Promises(tmp_path / "promises")
        for job_id in known:
            promises.write(what="accepted", request_id=job_id, job_id=job_id, exit_code=0, ranks=1)
        since_s = time.time()
        wait_until(lambda: _shipped_s(state_dir) > since_s, what="all of it is shipped")
        daemons.kill("master")
        shutil.rmtree(state_dir)

        words = ["recover", "--from", str(there), "--config", str(tmp_path / "master.toml")]
        words += ["--ca-key", str(tmp_path / "ca.key")]
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 0, done.output
        assert "changes after" in done.output
        daemons.start("master")
        daemons.wait_for("master")
        with daemons.connect() as line:
            jobs = Jobs(line)
            wait_until(
                lambda: all(_is_done(job) for job in jobs.list(user="*").jobs),
                what="every job completes",
                timeout_s=90.0,
            )
            assert {job.job_id for job in jobs.list(user="*").jobs} == known
            daemons.write_rows(jobs)
        since_s = time.time()
        wait_until(lambda: _shipped_s(state_dir) > since_s, what="the new one ships too")
    assert daemons.judge()["starts"] == JOBS


def _is_done(job: job_pb2.Job) -> bool:
    return job.state == job_pb2.JOB_STATE_COMPLETED


def _started(root: Path) -> int:
    ledger = root / "ledger"
    return ledger.read_text().count('"start"') if ledger.exists() else 0


def _shipped_s(state_dir: Path) -> float:
    status = read_status(state_dir)
    return 0.0 if status is None or status.failure else status.complete_s
