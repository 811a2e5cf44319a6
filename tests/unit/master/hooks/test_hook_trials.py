"""A file of hooks is tried on starts and ends that have been, and nothing comes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from dlq_common.errors import ConfigError
from dlq_master.hooks import trying
from dlq_master.hooks.process import HookFile
from dlq_master.hooks.trying import TriedAttempt, tried_attempts
from support.hook_files import PATIENCE_S, SOURCE, a_desk, a_run
from support.master_harness import Master
from support.sim_agent import SimAgent


def tried(
    master: Master,
    hook: str = "on_end",
    count: int = 10,
    policy: str = "closed",
    source: str = SOURCE,
    limit_s: float = PATIENCE_S,
) -> Sequence[TriedAttempt]:
    """The answers of this file. Whatever they are, the master is as before."""
    before = everything(master)

    async def trial() -> Sequence[TriedAttempt]:
        desk = a_desk(on_start=policy, on_end=policy, time_limit=limit_s)
        file = HookFile("new.py", source)
        try:
            return await tried_attempts(desk, master.loop.published, file, hook, count)
        finally:
            assert not desk.calls
            await desk.close()

    try:
        return asyncio.run(trial())
    finally:
        assert everything(master) == before


def everything(master: Master) -> tuple[Any, ...]:
    jobs = [*master.loop.published.jobs()]
    return master.events(), jobs, master.state.journal.hooks_seen


@pytest.mark.parametrize(("policy", "held"), [("open", False), ("closed", True), ("", False)])
def test_a_hook_that_raises_would_hold_where_it_is_closed(
    master: Master, agent: SimAgent, policy: str, held: bool
) -> None:
    key = a_run(master, agent, name="throw")
    (one,) = tried(master, policy=policy)
    assert one.told.key == key
    assert one.result.failed.startswith("KeyError: 'cost centre' (line ")
    assert one.result.hold == (f"hook on_end failed: {one.result.failed}" if held else "")


def test_a_hold_and_its_note_are_shown(master: Master, agent: SimAgent) -> None:
    key = a_run(master, agent, code=3)
    (one,) = tried(master)
    assert one.result.hold == "exit 3 means a broken data set"
    assert one.result.notes == (f"{key.job_id}.1.on_end failed",)


def test_a_hook_that_hangs_fails_alone(master: Master, agent: SimAgent) -> None:
    for name in ("print", "hang", "hang"):
        a_run(master, agent, name=name)
    *hung, printed = tried(master, limit_s=0.5)
    assert [one.result.failed for one in hung] == ["it took longer than 0.5 s"] * 2
    assert hung[0].result.hold == "hook on_end failed: it took longer than 0.5 s"
    assert (printed.result.failed, printed.said) == ("", "looked at 1.1.on_end\n")


def test_the_newest_are_told_first_over_pages(
    master: Master, agent: SimAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [a_run(master, agent) for _ in range(3)]
    monkeypatch.setattr(trying, "PAGE", 2)
    starts = tried(master, "on_start", count=2)
    assert [one.told.key for one in starts] == [keys[2], keys[1]]
    assert starts[0].result.notes == ("3.1.on_start on gpu01",)
    assert len(tried(master)) == 3
    monkeypatch.setattr(trying, "MOST_READ", 2)
    assert len(tried(master)) == 1


def test_without_attempts_nothing_is_told_but_the_file_is_loaded(master: Master) -> None:
    assert not tried(master)
    with pytest.raises(ConfigError, match="cannot be loaded: OSError: no"):
        tried(master, source="raise OSError('no')")
