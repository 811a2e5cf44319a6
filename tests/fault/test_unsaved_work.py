"""Pause, requeue and drain of a job that never saved: refused or asked before its work is lost, on
real daemons.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from dlq_client.jobs import Jobs
from dlq_common.errors import WorkWouldBeLost
from support.harness import Daemons
from support.terminal import Terminal
from support.waiting import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long("unit/master/model/attempts/test_unsaved.py", "integration/test_rpc_jobs.py"),
]

NEVER = "has never saved and says nothing of how"


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """A master and one node with eight virtual GPUs."""
    with Daemons(tmp_path_factory.mktemp("cluster"), ("n1",)).up() as made:
        yield made


def running(daemons: Daemons, *flags: str, seconds: str = "600") -> str:
    """A job that runs, and has been heard to."""
    command = ("/bin/sleep", seconds)
    number = daemons.said("submit", "--parsable", *flags, "--", *command).strip()
    wait_until(lambda: state(daemons, number) == "running", what=f"job {number} runs")
    return number


def state(daemons: Daemons, number: str) -> str:
    (found,) = json.loads(daemons.said("status", "--json", number))["jobs"]
    return str(found["state"])


def test_a_job_that_never_saved_is_paused_only_after_somebody_accepts_the_loss(
    daemons: Daemons,
) -> None:
    number = running(daemons)
    for command in (("pause", number), ("requeue", number)):
        refused = daemons.dlq(*command)
        assert refused.code == 2, refused
        assert f"job {number} {NEVER}" in refused.err
        assert "of work on 1 GPU would be lost" in refused.err
        assert "-y" in refused.err
    assert state(daemons, number) == "running", "nothing was done"
    with daemons.connect() as line, pytest.raises(WorkWouldBeLost, match=NEVER):
        Jobs(line).pause(number)  # a program that knows nothing of the question
    assert "(never saved)" in daemons.said("status", number)
    done = daemons.dlq("pause", "-y", number)
    assert done.code == 0, done
    assert "pausing" in done.out
    assert "of work on 1 GPU is lost" in done.err
    wait_until(lambda: state(daemons, number) == "held", what="it has left")
    assert "attempt_preempted_lost" in daemons.said("events", number)
    daemons.said("cancel", number)


def test_of_several_jobs_those_that_lose_nothing_change_and_the_others_are_asked_for(
    daemons: Daemons,
) -> None:
    saves, never = running(daemons, "--save-signal", "USR1"), running(daemons)
    waits = daemons.said("submit", "--parsable", "-b", "now+1h", "--", "/bin/true").strip()
    refused = daemons.dlq("pause", saves, never, waits)
    assert refused.code == 2
    assert f"job {never} {NEVER}" in refused.err
    assert f"job {saves} {NEVER}" not in refused.err
    assert state(daemons, waits) == "held"
    wait_until(lambda: state(daemons, saves) in ("pausing", "held"), what="that one leaves")
    assert state(daemons, never) == "running"
    again = daemons.dlq("requeue", "-y", never)
    assert "is saving" not in again.out + again.err
    assert "is lost" in again.err
    for number in (saves, never, waits):
        daemons.said("cancel", "--kill", number)


def test_who_sits_at_a_terminal_is_asked(daemons: Daemons) -> None:
    number = running(daemons)
    environ = daemons.environment() | {"DLQ_HOME": str(daemons.root / "home"), "COLUMNS": "200"}
    command = [sys.executable, "-m", "dlq_cli.main", "pause", number]
    with Terminal(command, environ) as terminal:
        terminal.expect(f"job {number} {NEVER}")
        terminal.expect("Go on? [y/N]")
        terminal.press("n\n")
        assert terminal.end() == 1
        assert "nothing was done" in terminal.shown
    assert state(daemons, number) == "running"
    with Terminal(command, environ) as terminal:
        terminal.expect("Go on? [y/N]")
        terminal.press("y\n")
        assert terminal.end() == 0
    wait_until(lambda: state(daemons, number) == "held", what="it has left")
    daemons.said("cancel", number)


def test_a_drain_says_whose_work_is_lost_and_undrain_takes_the_same_flag(daemons: Daemons) -> None:
    number = running(daemons)
    refused = daemons.dlq("admin", "node", "drain", "n1", "--reason", "fan")
    assert refused.code == 2
    assert f"job {number} {NEVER}" in refused.err
    assert state(daemons, number) == "running"
    done = daemons.dlq("admin", "node", "drain", "n1", "--reason", "fan", "-y")
    assert done.code == 0, done
    assert f"job {number}" in done.err
    assert "is lost" in done.err
    daemons.said("admin", "node", "undrain", "-y", "n1")
    daemons.said("cancel", "--kill", number)


def test_an_array_is_asked_for_once_and_slurms_words_ask_nobody(daemons: Daemons) -> None:
    array = daemons.said("submit", "--parsable", "-a", "0-2", "--", "/bin/sleep", "600").strip()
    tasks = [f"{array}_{index}" for index in range(3)]
    wait_until(lambda: {state(daemons, task) for task in tasks} == {"running"}, what="they run")
    refused = daemons.dlq("pause", array)
    assert refused.code == 2
    assert refused.err.count(NEVER) == 3
    done = daemons.dlq("slurm", "scontrol", "requeue", f"{array}_0")
    assert done.code == 0, done
    assert "is lost" in done.err
    daemons.said("cancel", "--kill", array)
