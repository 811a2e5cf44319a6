"""The metronome: every tick comes, and those that were missed come once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dlq_master.control.loop.ticks import Metronome
from dlq_master.control.stimuli import Stimulus, Tick


class Timers:
    """An event loop whose time is told."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.due: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []

    def time(self) -> float:
        return self.now_s

    def call_at(self, due_s: float, call: Callable[..., None], *arguments: Any) -> Timers:
        self.due.append((due_s, call, arguments))
        return self

    def cancel(self) -> None:
        self.due.clear()

    def advance(self, by_s: float) -> None:
        self.now_s += by_s
        while ready := [one for one in self.due if one[0] <= self.now_s]:
            self.due.remove(ready[0])
            ready[0][1](*ready[0][2])


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    made = Timers()
    monkeypatch.setattr("asyncio.get_running_loop", lambda: made)
    return made


def test_each_period_has_its_ticks(timers: Timers) -> None:
    told: list[Stimulus] = []
    Metronome(told.append, {"leases": 1.0, "compact": 3.0})
    for _ in range(6):
        timers.advance(1.0)
    assert told.count(Tick("leases")) == 6
    assert told.count(Tick("compact")) == 2


def test_ticks_that_were_missed_come_once_and_the_beat_stays(timers: Timers) -> None:
    told: list[Stimulus] = []
    metronome = Metronome(told.append, {"leases": 1.0})
    timers.advance(5.4)
    assert told == [Tick("leases")]
    timers.advance(0.6)
    assert len(told) == 2
    metronome.stop()
    timers.advance(10.0)
    assert len(told) == 2
