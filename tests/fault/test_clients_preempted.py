"""Jobs with a client, preempted for a job of higher priority: allocations, stdins and terminals."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dlq.v1 import job_pb2
from dlq_cli.words import shown_state
from dlq_client.jobs import Jobs
from support.harness import BIN, Daemons
from support.sessions import Session
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long("unit/master/control/people/test_control_attendance.py"),
]
DLQ = str(BIN / "dlq")
DEADLINE_S = 60.0
SOON = 'be_term = "2s"\nslo_term = "8s"\nsave_lead = "0s"\nresume = "0s"\n'
QUEUES = """
attend_silence = "8s"

[[queues]]
name = "default"

[[queues]]
name = "urgent"
priority = 10
"""


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """A master with two queues, and one node with eight virtual GPUs."""
    at = tmp_path_factory.mktemp("preempted")
    with Daemons(at, ("n1",), lease=SOON, settings=QUEUES).up() as made:
        made.said("admin", "policy", "set", "tiresias-las", "-s", "min_run=0", "-y")
        yield made


def job(daemons: Daemons, name: str) -> job_pb2.Job:
    with daemons.connect() as line:
        found = [each for each in Jobs(line).list(user="*").jobs if each.name == name]
    return found[-1] if found else job_pb2.Job()


def until(daemons: Daemons, name: str, *wanted: str) -> job_pb2.Job:
    wait_until(
        lambda: shown_state(job(daemons, name)) in wanted,
        what=f"{name} is {wanted}",
        timeout_s=DEADLINE_S,
    )
    return job(daemons, name)


@contextmanager
def urgent(daemons: Daemons) -> Iterator[None]:
    """A job that takes the whole node runs inside the block."""
    words = ("--queue", "urgent", "-G", "8", "-J", "urgent", "--", "sleep", "1000")
    number = daemons.said("submit", "--parsable", *words).strip()
    until(daemons, "urgent", "running")
    yield
    daemons.said("cancel", "--kill", number)
    until(daemons, "urgent", "cancelled")


@pytest.mark.parametrize("killed", [False, True], ids=["client", "killed-client"])
def test_an_allocation_that_is_preempted_is_over_and_leaks_nothing(
    daemons: Daemons, killed: bool
) -> None:
    name = f"salloc-{killed}"
    words = ("slurm", "salloc", "-G8", "-J", name, "sh", "-c", "echo up; read x; exit 7")
    with daemons.begun(DLQ, *words, stdin=subprocess.PIPE) as client:
        assert client.stdout is not None
        assert client.stdin is not None
        assert client.stderr is not None
        assert client.stdout.readline() == b"up\n"
        if killed:
            client.kill()
        with urgent(daemons):
            ended = until(daemons, name, "failed", "cancelled")
            if not killed:
                assert ended.end_reason in ("preempted", "preempted_lost")
                client.stdin.write(b"\n")
                client.stdin.flush()
                assert client.wait(DEADLINE_S) == 7, "its command goes on without nodes"
                assert b"has been revoked." in client.stderr.read()
    assert ended.attempt_count == 1
    assert shown_state(job(daemons, name)) in ("failed", "cancelled"), "and is not run again"


def test_a_job_that_has_read_its_stdin_has_failed_when_it_is_preempted(daemons: Daemons) -> None:
    words = ("run", "-G", "8", "-J", "tied", "--", "sh", "-c", "read x; echo $x; cat")
    with daemons.begun(DLQ, *words, stdin=subprocess.PIPE) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(b"one\n")
        client.stdin.flush()
        assert client.stdout.readline() == b"one\n"
        with urgent(daemons):
            assert client.wait(DEADLINE_S) != 0
    ended = until(daemons, "tied", "failed")
    assert ended.attempt_count == 1
    assert ended.end_reason in ("preempted", "preempted_lost")


def test_a_job_that_has_read_nothing_comes_back_and_gets_it_all(daemons: Daemons) -> None:
    words = ("run", "-G", "8", "-J", "free", "--", "sh", "-c", "echo $DLQ_ATTEMPT; cat")
    with daemons.begun(DLQ, *words, stdin=subprocess.PIPE) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"1\n"
        with urgent(daemons):
            until(daemons, "free", "queued")
        assert client.stdout.readline() == b"2\n"
        out, _ = client.communicate(b"all of it\n", timeout=DEADLINE_S)
        assert (client.returncode, out) == (0, b"all of it\n")


@pytest.mark.parametrize("killed", [False, True], ids=["client", "killed-client"])
def test_a_terminal_that_is_preempted_is_given_back(daemons: Daemons, killed: bool) -> None:
    name = f"shell-{killed}"
    words = ("run", "-G", "8", "-J", name, "--pty", "--env", "PS1=$ ", "--", "sh")
    session = Session(daemons.environment(), DLQ, *words)
    before = session.mode()
    session.expect("$ ")
    if killed:
        os.kill(session.pid, signal.SIGKILL)
        assert session.end() == -signal.SIGKILL
    with urgent(daemons):
        ended = until(daemons, name, "failed", "cancelled")
        if not killed:
            assert session.end() != 0
            assert session.last_mode == before
            assert ended.end_reason in ("preempted", "preempted_lost")
    assert ended.attempt_count == 1
