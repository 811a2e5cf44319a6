"""One cluster of many: first come, first served, with gangs whole; and its forecast of starts.

The forecast is what a cluster knows: it takes foretold run times for real ones. A job that runs
longer than foretold is expected to end at any moment.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from math import inf

# So often a forecast is made anew from what runs and waits. In between, jobs are only added.
_ANEW_S = 300.0


class Member:
    """Waiting and running jobs by their numbers. `gpus`: all of the cluster."""

    __slots__ = (
        "_anew_s",
        "_ends",
        "_free",
        "_front_s",
        "free",
        "queue",
        "running",
        "waiting_gpus",
    )

    def __init__(self, gpus: int) -> None:
        self.free = gpus
        self.queue: deque[int] = deque()
        self.running: dict[int, tuple[float, int]] = {}  # job: its foretold end, and its GPUs
        self.waiting_gpus = 0
        self._front_s = 0.0  # the last job of the queue starts then
        self._free = gpus  # GPUs that are free at that moment
        self._ends: list[tuple[float, int]] = []  # of jobs that run then: a heap of foretold ends
        self._anew_s = 0.0

    def foretell(self, now_s: float, wanted: int, foretold_s: float) -> None:
        """A job joins the queue: the next one starts no earlier."""
        start_s = self._advance(now_s, wanted)
        self._free -= wanted
        heappush(self._ends, (start_s + foretold_s, wanted))

    def starts(self, now_s: float, sizes: tuple[int, ...]) -> list[float]:
        """The foretold start of a next job of each of these sizes, which rise. In s."""
        at_s, free, ends = max(now_s, self._front_s), self._free, self._ends
        found = []
        if ends and free < sizes[-1]:
            ends = ends.copy()
        for wanted in sizes:
            while free < wanted and ends:
                end_s, gpus = heappop(ends)
                at_s, free = max(at_s, end_s), free + gpus
            found.append(at_s if free >= wanted else inf)
        return found

    def look_again(self, now_s: float, jobs: list[tuple[int, float]]) -> None:
        """Make the forecast anew if it is old. `jobs`: GPUs and foretold time by number."""
        if now_s - self._anew_s < _ANEW_S:
            return
        self._anew_s = now_s
        self._front_s, self._free = now_s, self.free
        self._ends = [(max(now_s, end_s), gpus) for end_s, gpus in self.running.values()]
        heapify(self._ends)
        for job in self.queue:
            self.foretell(now_s, *jobs[job])

    def _advance(self, now_s: float, wanted: int) -> float:
        """Move the front to the start of a job of this size."""
        self._front_s = max(self._front_s, now_s)
        while self._free < wanted and self._ends:
            end_s, gpus = heappop(self._ends)
            self._front_s, self._free = max(self._front_s, end_s), self._free + gpus
        return self._front_s
