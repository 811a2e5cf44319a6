"""A master that is away for longer than the hold: real daemons, real shims, and jobs that know
nothing of all this."""

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
from support.harness import BRIEF_SILENCE_S, Daemons
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "unit/nodeagent/test_core_holding.py",
        "unit/master/control/jobs/test_control_limits.py",
        "integration/test_identity_tls.py",
    ),
]

HOLD_S = 8
LIMIT_S = 10


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
    root = tmp_path_factory.mktemp("cluster")
    made = Daemons(root, ("n1",), hold_s=HOLD_S, silence_s=BRIEF_SILENCE_S)
    with made.up():
        yield made


@contextmanager
def without_a_master(daemons: Daemons, *job_ids: str, go: Path | None = None) -> Iterator[None]:
    """The master is away until these jobs have ended, each in its first attempt; then it is back,
    and so is the node. `go` is made as soon as it is away."""
    daemons.kill("master")
    if go is not None:
        go.touch()
    ends = [f"n1/attempts/{job_id}.1.*/exit.json" for job_id in job_ids]
    wait_until(lambda: all(any(daemons.root.glob(end)) for end in ends), what=f"{ends}")
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
        with without_a_master(impatient, job_id):
            pass
        # More than once, if the machine then stands still for as long as a job survives it.
        wait_until(lambda: len(ends_of(jobs, job_id)) > 1, what="it is run again")
        assert ends_of(jobs, job_id)[0] == "ATTEMPT_STATE_PREEMPTED_LOST"
        assert not has_ended(jobs.get(job_id).job)
        jobs.cancel(job_id, kill=True)


def test_a_job_that_ends_within_its_limit_while_there_is_no_master_keeps_its_end(
    impatient: Daemons,
) -> None:
    go = impatient.root / "go"
    with impatient.connect() as line:
        jobs = Jobs(line)
        job_ids = []
        for code in (0, 3):
            script = f"until [ -e {go} ]; do sleep 0.1; done; exit {code}"
            spec = a_spec("/bin/sh", "-c", script)
            spec.time_limit_duration.FromSeconds(LIMIT_S)
            job_ids.append(jobs.submit(spec).job.job_id)
        for job_id in job_ids:
            wait_until(partial(is_running, jobs, job_id), what="it runs")
        clock = SteadyClock()
        past_s = clock.boottime_s() + LIMIT_S
        with without_a_master(impatient, *job_ids, go=go):
            wait_until(lambda: clock.boottime_s() > past_s, what="their limit is past")
        wait_until(lambda: all(has_ended(jobs.get(job_id).job) for job_id in job_ids), what="ends")
        ended = [jobs.get(job_id).job for job_id in job_ids]
        assert [(shown_state(job), job.exit_code) for job in ended] == [
            ("completed", 0), ("failed", 3),
        ]  # fmt: skip
        for job in ended:
            assert job.end_time.ToSeconds() - job.start_time.ToSeconds() < LIMIT_S


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
