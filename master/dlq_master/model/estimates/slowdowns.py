"""How much jobs were slowed by being spread, from which a place stage may learn."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from dlq_master.model.estimates.traffic import TrafficProfile

# Older ones are forgotten: a fabric changes, and a limit needs no more.
KEPT = 2_000


class TimedRun(NamedTuple):
    """One attempt of a job on several GPUs that is over.

    `spread`: it ran on more nodes than its width needs. `slowdown`: its time for an iteration over
    that of the same job on as few nodes as can be; 1 is as fast.
    """

    profile: TrafficProfile
    spread: bool
    slowdown: float


class Slowdowns:
    """Runs whose speed was measured. Part of the working state and stored nowhere, as `History`."""

    __slots__ = ("_newest", "_since", "learned")

    def __init__(self) -> None:
        """`learned` is replaced as a whole after a tenth of what is known; it is never changed."""
        self.learned: tuple[TimedRun, ...] = ()
        self._newest: deque[TimedRun] = deque(maxlen=KEPT)
        self._since = 0

    def add(self, run: TimedRun) -> None:
        """One more; refused unless it took time."""
        if not 0.0 < run.slowdown < float("inf"):
            raise ValueError(f"a slowdown is a positive number, not {run.slowdown}")
        self._newest.append(run)
        self._since += 1
        if self._since >= max(1, len(self._newest) // 10):
            self._since = 0
            self.learned = tuple(self._newest)
