"""A master that is away for longer than the hold: real daemons, real shims, and jobs that know nothing
of all this."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from dlq.v1 import job_pb2, resource_pb2
from dlq_cli.words import has_ended, shown_state
from dlq_client.jobs import Jobs
from dlq_common.clock import SteadyClock
from support.harness import Daemons
from support.waiting import wait_until

pytestmark = pytest.mark.integration

HOLD_S = 8


def a_spec(*command: str) -> job_pb2.JobSpec:
    return job_pb2.JobSpec(
        name="alone",
        command=command,
        resources=resource_pb2.ResourceRequest(gpu_count=1),
        working_directory="/tmp",
    )


def is_running(jobs: Jobs, job_id: str) -> bool:
    return shown_state(jobs.get(job_id).job) == "running"


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """A cluster whose jobs do not go on for long without a master."""
    made = Daemons(tmp_path_factory.mktemp("cluster"), agents=("n1",), hold_s=HOLD_S)
    with made.up():
        yield made


@contextmanager
def without_a_master(daemons: Daemons, *, until: str, count: int) -> Iterator[None]:
    """The master is away until that many files match; then it is back, and so is the node."""
    daemons.kill("master")
    wait_until(
        lambda: len(list(daemons.root.glob(until))) == count,
        what=f"{count} x {until}",
        timeout_s=60.0,
    )
    yield
    daemons.start("master")
    daemons.wait_for("master")


def ends_of(jobs: Jobs, job_id: str) -> list[str]:
    """How its attempts so far have ended, in words; the newest may still run."""
    attempts = jobs.get(job_id).attempts
    return [job_pb2.AttemptState.Name(attempt.state) for attempt in attempts]


@pytest.mark.parametrize(
    "script", ["exec sleep 600", "trap 'exit 143' TERM USR1; sleep 600 & wait"]
)
def test_a_job_that_dies_of_its_shims_notice_is_run_again(impatient: Daemons, script: str) -> None:
    with impatient.connect() as line:
        jobs = Jobs(line)
        job_id = jobs.submit(a_spec("/bin/sh", "-c", script)).job.job_id
        wait_until(partial(is_running, jobs, job_id), what="it runs")
        ended = f"n1/attempts/{job_id}.1.*/exit.json"
        with without_a_master(impatient, until=ended, count=1):
            pass
        wait_until(lambda: len(ends_of(jobs, job_id)) == 2, what="it is run again")
        assert ends_of(jobs, job_id)[0] == "ATTEMPT_STATE_PREEMPTED_LOST"
        assert not has_ended(jobs.get(job_id).job)
        jobs.cancel(job_id, kill=True)


def test_a_job_that_ends_within_its_limit_while_there_is_no_master_keeps_its_end(
    tmp_path: Path,
) -> None:
    daemons = Daemons(tmp_path, agents=("n1",), hold_s=120)
    with daemons.up(), daemons.connect() as line:
        jobs = Jobs(line)
        job_ids = []
        for code in (0, 3):
            spec = a_spec("/bin/sh", "-c", f"sleep 4; exit {code}")
            spec.time_limit_duration.FromSeconds(8)
            job_ids.append(jobs.submit(spec).job.job_id)
        for job_id in job_ids:
            wait_until(partial(is_running, jobs, job_id), what="it runs")
        clock = SteadyClock()
        away_s = clock.boottime_s()
        with without_a_master(daemons, until="n1/attempts/*/exit.json", count=2):
            wait_until(lambda: clock.boottime_s() > away_s + 12.0, what="their limit is past")
        wait_until(lambda: all(has_ended(jobs.get(job_id).job) for job_id in job_ids), what="ends")
        ended = [jobs.get(job_id).job for job_id in job_ids]
        assert [(shown_state(job), job.exit_code) for job in ended] == [
            ("completed", 0), ("failed", 3),
        ]  # fmt: skip
        for job in ended:
            assert job.end_time.ToSeconds() - job.start_time.ToSeconds() < 8


def test_a_master_whose_port_is_taken_says_so_and_ends(impatient: Daemons) -> None:
    """Whoever started it, a person or systemd, must learn of it: it does not stay half up."""
    impatient.stop("master")
    host, _, port = impatient.api.rpartition(":")
    with socket.create_server((host, int(port))):
        impatient.start("master")
        impatient.wait_for_failure("master")
    assert f"cannot listen at {impatient.api}" in impatient.log("master")
    impatient.start("master")
    impatient.wait_for("master")
