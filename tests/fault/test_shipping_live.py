"""The master and its disk are lost: another one is recovered from what was shipped, and no job
notices.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from dlq.v1 import job_pb2
from dlq_client.jobs import Jobs
from dlq_common.errors import DlqError
from dlq_common.text.instants import format_instant
from dlq_master.app import main
from dlq_master.recovering import LEAP
from dlq_master.shipping.chain import heartbeat_of
from dlq_master.shipping.place import Directory, epoch_of
from dlq_master.shipping.status import read_status
from support.harness import Daemons
from support.ledger_clients import Promises
from support.proofs import proved
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


def test_a_host_lost_in_mid_load_costs_what_the_recovery_says_and_nothing_before(
    tmp_path: Path,
) -> None:
    """Clients submit all the time. The shipping stands still for the last of it, so that there is
    something to lose, and then the master and its shipping die at once, as with their host.
    """
    there = tmp_path / "there"
    there.mkdir()
    daemons = Daemons(tmp_path, ("n1",), settings=SETTINGS.format(there=there))
    with daemons.up():
        state_dir = tmp_path / "master"
        shutil.copy(state_dir / "ca.key", tmp_path / "ca.key")
        with _submitting(daemons) as accepted:
            wait_until(lambda: len(accepted) >= JOBS, what="jobs are accepted")
            since_s = time.time()
            wait_until(lambda: _shipped_s(state_dir) > since_s, what="some of it is shipped")
            shipping = _shipping_of(daemons.pid("master"))
            os.kill(shipping, signal.SIGSTOP)
            count = len(accepted)
            wait_until(lambda: len(accepted) >= count + JOBS, what="more jobs are accepted")
            daemons.kill("master")
            os.kill(shipping, signal.SIGKILL)
        epoch = max(map(epoch_of, Directory(there).names("")))
        complete_s = _heartbeat_s(there)
        shutil.rmtree(state_dir)

        words = ["recover", "--from", str(there), "--config", str(tmp_path / "master.toml")]
        done = CliRunner().invoke(main, [*words, "--ca-key", str(tmp_path / "ca.key")])
        assert done.exit_code == 0, done.output
        assert f"changes after {format_instant(complete_s)}" in done.output
        daemons.start("master")
        daemons.wait_for("master")
        with daemons.connect() as line:
            found = {job.job_id for job in Jobs(line).list(user="*").jobs}
        lost = {job: at_s for job, at_s in accepted.items() if job not in found}
        assert lost, "the last jobs were never shipped"
        assert min(lost.values()) > complete_s, "what was acknowledged before that instant is there"
        wait_until(
            lambda: max(map(epoch_of, Directory(there).names(""))) > epoch + LEAP,
            what="the new one ships, in a higher epoch",
        )
        proved(
            "a host lost in mid-load",
            accepted=len(accepted),
            lost=len(lost),
            lost_before_the_told_instant=0,
            lost_span_s=round(max(lost.values()) - complete_s, 2),
        )


@contextmanager
def _submitting(daemons: Daemons) -> Iterator[dict[str, float]]:
    """A client that submits until its master is away. When each job was accepted, by its id."""
    accepted: dict[str, float] = {}

    def work() -> None:
        with suppress(DlqError), daemons.connect(patience_s=1.0) as line:
            while True:
                spec = daemons.ledger_job(0.1, 0)
                spec.hold = True
                job = Jobs(line).submit(spec).job.job_id
                accepted[job] = time.time()

    client = threading.Thread(target=work)
    client.start()
    yield accepted
    client.join()


def _shipping_of(master: int) -> int:
    children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
    (found,) = (
        one for one in children if b"shipping.program" in Path(f"/proc/{one}/cmdline").read_bytes()
    )
    return int(found)


def _heartbeat_s(there: Path) -> float:
    place = Directory(there)
    beat = heartbeat_of(place, place.names("")[-1])
    assert beat is not None
    return beat.complete_s


def _is_done(job: job_pb2.Job) -> bool:
    return job.state == job_pb2.JOB_STATE_COMPLETED


def _started(root: Path) -> int:
    ledger = root / "ledger"
    return ledger.read_text().count('"start"') if ledger.exists() else 0


def _shipped_s(state_dir: Path) -> float:
    status = read_status(state_dir)
    return 0.0 if status is None or status.failure else status.complete_s
