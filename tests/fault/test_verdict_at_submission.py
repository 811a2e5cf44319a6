"""`dlq submit --deadline` says by itself whether the deadline is promised, on a real master with
its planner.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from dlq_cli.commands.jobs import verdict
from support.cli_run import Said
from support.harness import Daemons

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long(
        "unit/master/control/deadlines/test_control_deadlines.py",
        "integration/test_cli_deadlines.py",
    ),
]

# Slots of four seconds: all of a small cluster may be promised.
LEASE = 'be_term = "2s"\nslo_term = "4s"\nsave_lead = "500ms"\nresume = "500ms"'
DUE = ("--deadline", "1h")
KEPT, REFUSED = (*DUE, "--work", "5m", "-G", "1"), (*DUE, "--work", "59m", "-G", "8")


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """A master, and one node with eight virtual GPUs."""
    with Daemons(tmp_path_factory.mktemp("cluster"), ("n1",), lease=LEASE).up() as made:
        yield made


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a busy machine takes for a plan: the two seconds are for people."""
    monkeypatch.setattr(verdict, "PATIENCE_S", 60.0)


def submit(daemons: Daemons, *flags: str) -> Said:
    """A job that waits, so that those of one test are nothing to the next."""
    done = daemons.dlq("submit", *flags, "--", "/bin/sleep", "600")
    assert done.code == 0, done
    return done


@pytest.fixture(autouse=True)
def cleared(daemons: Daemons) -> Iterator[None]:
    """A policy that promises deadlines, and nothing is left of a test's jobs."""
    settings = ("-s", "be_floor=0", "-s", "profile_floor=0")
    daemons.said("admin", "policy", "set", "chronus", *settings, "-y")
    yield
    for job in json.loads(daemons.said("status", "--json"))["jobs"]:
        daemons.said("cancel", "--kill", job["job_id"])


@pytest.mark.usefixtures("unhurried")
def test_a_promise_and_a_refusal_with_its_offer_are_said_by_default(daemons: Daemons) -> None:
    kept = submit(daemons, *KEPT)
    number = kept.out.removeprefix("Submitted batch job ").strip()
    assert kept.out == f"Submitted batch job {number}\n"
    assert f"job {number} is guaranteed: its deadline is promised" in kept.err
    refused = submit(daemons, *REFUSED)
    assert "is not guaranteed: nothing is promised" in refused.err
    assert "the earliest that could be promised: --deadline" in refused.err


@pytest.mark.usefixtures("unhurried")
def test_programs_get_what_they_read_and_nothing_else(daemons: Daemons) -> None:
    alone = submit(daemons, "--parsable", *KEPT)
    assert alone.out.strip().isdecimal()
    assert "is guaranteed" in alone.err
    (job,) = json.loads(submit(daemons, "--json", *KEPT).out)["jobs"]
    assert job["promise"]["state"] == "guaranteed"
    assert "guaranteed" not in submit(daemons, "--no-wait", *KEPT).err


@pytest.mark.usefixtures("unhurried")
def test_a_promise_to_a_job_that_says_nothing_of_how_it_saves_warns(daemons: Daemons) -> None:
    warned = submit(daemons, *KEPT)
    assert "nothing is known of how it saves" in warned.err
    assert "nothing is known of how" not in submit(daemons, "--save-signal", "USR1", *KEPT).err
    number = warned.out.split()[-1]
    assert "nothing is known of how it saves" in daemons.said("show", number)


@pytest.mark.usefixtures("unhurried")
def test_of_an_array_the_first_task_is_told_and_that_it_is_one_of_several(
    daemons: Daemons,
) -> None:
    kept = submit(daemons, *KEPT, "--array", "1-2")
    number = kept.out.split()[3]
    assert f"job {number}_1 is guaranteed: its deadline is promised" in kept.err
    assert "each of the other tasks is judged for itself" in kept.err
    assert "each of the other tasks" in submit(daemons, *REFUSED, "--array", "1-2").err


def test_a_time_limit_is_no_run_time_and_what_is_missing_is_said(daemons: Daemons) -> None:
    told = submit(daemons, *DUE, "--time", "5m", "-G", "1").err
    assert "the run time is unknown, so nothing can be promised yet" in told
    assert "--work" in told
    assert "not judged yet: not judged yet" not in told


def test_a_policy_without_promises_says_so_and_which_it_is(daemons: Daemons) -> None:
    daemons.said("admin", "policy", "set", "fifo", "-y")
    told = submit(daemons, *KEPT)
    assert "this cluster's policy, fifo, promises no deadlines" in told.err


def test_a_planner_that_does_not_answer_holds_nobody_up(daemons: Daemons) -> None:
    submit(daemons, *KEPT)  # it plans
    with stopped(children(daemons)):
        pending = submit(daemons, *KEPT)
        number = pending.out.split()[-1]
        assert f"job {number} is not judged yet" in pending.err
        assert f"dlq show {number}" in pending.err


def children(daemons: Daemons) -> list[int]:
    """The processes that plan for the master."""
    pid = daemons.pid("master")
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def stopped(pids: list[int]) -> Iterator[None]:
    """They do nothing meanwhile."""
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):  # the master has given it up
                os.kill(pid, signal.SIGCONT)
