"""Starts and ends of attempts are told to hooks at least once, and their results count once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from dlq_master.control.config import HooksConfig
from dlq_master.control.stimuli import HookResult, TakeHookResults
from dlq_master.hooks.following import HookFollower
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job import HoldKind, JobState
from support.hook_files import a_desk, a_run
from support.master_harness import Master
from support.sim_agent import SimAgent


class Told:
    """A control whose questions wait: a test gives them to its master."""

    def __init__(self, master: Master) -> None:
        self.published = master.loop.published
        self.asked: list[TakeHookResults] = []

    async def ask(self, stimulus: TakeHookResults) -> None:
        self.asked.append(stimulus)


def follow(
    master: Master,
    events: Sequence[JournalEvent],
    *,
    on_start: str = "open",
    on_end: str = "open",
) -> list[TakeHookResults]:
    """What the hooks' process says of these events."""
    told = Told(master)
    seen = master.state.journal.hooks_seen

    async def take() -> None:
        desk = a_desk(on_start=on_start, on_end=on_end)
        await HookFollower(desk, told, seen).take(events)  # type: ignore[arg-type]  # half of it
        await desk.close()

    asyncio.run(take())
    return told.asked


def noted(master: Master, job_id: JobId, kind: str) -> list[Any]:
    events = [event for event in master.events(job_id) if event.kind == kind]
    return [event.data.get("note") or event.cause for event in events]


def test_a_start_and_an_end_are_noted(master: Master, agent: SimAgent) -> None:
    key = a_run(master, agent)
    for asked in follow(master, master.events()):
        master.ask(asked)
    assert noted(master, key.job_id, "hook_noted") == [
        f"{key.job_id}.1.on_start on gpu01",
        f"{key.job_id}.1.on_end succeeded 0",
    ]


def test_results_count_once_also_over_a_restart(master: Master, agent: SimAgent) -> None:
    key = a_run(master, agent)
    events = master.events()
    (first,) = follow(master, events)
    (repeat,) = follow(master, events)  # the master died before it had stored the first
    assert repeat == first
    master.ask(first)
    master.restart()
    assert master.state.journal.hooks_seen == first.sequence
    master.ask(repeat)
    assert len(noted(master, key.job_id, "hook_noted")) == 2


def test_only_hooks_that_are_configured_are_asked(master: Master, agent: SimAgent) -> None:
    a_run(master, agent)
    (asked,) = follow(master, master.events(), on_start="")
    assert [one.hook for one in asked.results] == ["on_end"]


def test_a_hold_keeps_the_next_attempt_from_starting(master: Master) -> None:
    job_id = master.submit(1).job_id
    key = AttemptKey(job_id, 1)
    result = HookResult(key, "on_end", ("seen",), "exit 3 means a broken data set")
    master.ask(TakeHookResults(sequence=10_000, results=(result,)))
    job = master.job(job_id)
    assert (job.state, job.hold) == (JobState.HELD, HoldKind.ADMIN)
    assert job.hold_reason == "exit 3 means a broken data set"


@pytest.mark.parametrize(("name", "hold"), [("silent", ""), ("bare", "look first")])
def test_a_hook_that_says_nothing_more_has_not_failed(
    master: Master, agent: SimAgent, name: str, hold: str
) -> None:
    key = a_run(master, agent, code=3, name=name)
    (asked,) = follow(master, master.events(), on_end="closed")
    assert asked.results[-1] == HookResult(key, "on_end", (), hold)


def test_a_hold_of_an_ended_job_is_left_out(master: Master, agent: SimAgent) -> None:
    key = a_run(master, agent, code=3)
    for asked in follow(master, master.events()):
        assert asked.results[-1].hold == "exit 3 means a broken data set"
        master.ask(asked)
    assert master.job(key.job_id).hold is None
    assert noted(master, key.job_id, "hook_noted")[-1] == f"{key.job_id}.1.on_end failed"


@pytest.mark.parametrize(("policy", "held"), [("open", ""), ("closed", "hook on_end failed: ")])
def test_a_failure_is_noted_and_holds_where_it_is_closed(
    master: Master, agent: SimAgent, policy: str, held: str
) -> None:
    key = a_run(master, agent, name="throw")
    (asked,) = follow(master, master.events(), on_end=policy)
    failed = asked.results[-1]
    assert failed.failed.startswith("KeyError: 'cost centre'")
    assert failed.hold.startswith(held)
    assert bool(failed.hold) == bool(held)
    master.ask(asked)
    assert noted(master, key.job_id, "hook_failed") == [failed.failed]


def test_a_process_that_dies_is_asked_again(master: Master, agent: SimAgent) -> None:
    a_run(master, agent, name="die")
    (asked,) = follow(master, master.events())
    assert asked.results[-1].failed.startswith("its process ended")


def test_without_hooks_nobody_follows() -> None:
    assert not HooksConfig(file="", on_end="open").follows
    assert not HooksConfig(file="/h.py", on_submit="open").follows
    assert HooksConfig(file="/h.py", on_end="open").follows
