"""One cluster of many: first come, first served, with gangs whole; and its forecast of starts.

No later job changes the start of an earlier one. So a start is found when the job arrives: for real
from real run times, and as a forecast from foretold ones. The forecast is what a cluster knows. A
job that runs longer than foretold is expected to end at any moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from math import inf

import numpy as np

from benchmarks.clusters.drawn_jobs import Numbers

# So often a forecast is made anew from what runs and waits. In between, jobs are only added.
_ANEW_S = 300.0
# A long queue takes its time: so much for each waiting job.
_ANEW_PER_JOB_S = 0.1
# The columns of `_known`: start, end, foretold run time, GPUs.
_FACTS = 4


class ServedLine:
    """The GPUs of a cluster as its queue takes them. `gpus`: free from `now_s` on."""

    __slots__ = ("ends", "free", "front_s")

    def __init__(self, now_s: float, gpus: int) -> None:
        self.front_s = now_s  # the last job of the queue starts then
        self.free = gpus  # GPUs that are free at that moment, and none of `ends`
        self.ends: list[tuple[float, int]] = []  # a heap of ends, with GPUs

    def join(self, now_s: float, wanted: int, run_s: float) -> float:
        """The start of a job that comes now and runs for so long: the next starts no earlier."""
        start_s = max(self.front_s, now_s)
        free, ends = self.free, self.ends
        while free < wanted:
            end_s, gpus = heappop(ends)
            free += gpus
            if end_s > start_s:
                start_s = end_s
        self.front_s, self.free = start_s, free - wanted
        heappush(ends, (start_s + run_s, wanted))
        return start_s

    def starts(self, now_s: float, sizes: Sequence[int]) -> list[float]:
        """The start of a next job of each of these sizes, which rise. In s; inf: never."""
        at_s, free, ends = max(now_s, self.front_s), self.free, self.ends
        found = []
        if ends and free < sizes[-1]:
            ends = ends.copy()
        for wanted in sizes:
            while free < wanted and ends:
                end_s, gpus = heappop(ends)
                at_s, free = max(at_s, end_s), free + gpus
            found.append(at_s if free >= wanted else inf)
        return found


class Member:
    """A cluster with so many GPUs, its jobs so far, and its promises."""

    __slots__ = ("_anew_s", "_forecast", "_gpus", "_known", "_news", "_real", "kept", "promised")

    def __init__(self, gpus: int) -> None:
        self._gpus = gpus
        self._real = ServedLine(0.0, gpus)
        self._forecast = ServedLine(0.0, gpus)
        self._anew_s = _ANEW_S
        self._known: Numbers = np.empty((0, _FACTS))  # jobs that had not ended at the last look
        self._news: list[float] = []  # the same of jobs since then, one after the other
        self.promised = self.kept = 0

    def play(self, jobs: Iterable[tuple[float, int, float, float, float]]) -> list[float]:
        """The starts of these jobs: submission, GPUs, run time, foretold run time, and deadline.

        A deadline is promised where the forecast keeps it.
        """
        found, news = [], self._news
        for at_s, wanted, run_s, foretold_s, due_s in jobs:
            if due_s < inf and at_s >= self._anew_s:
                self.look_again(at_s)
                news = self._news
            told_s = self._forecast.join(at_s, wanted, foretold_s)
            start_s = self._real.join(at_s, wanted, run_s)
            news += (start_s, start_s + run_s, foretold_s, wanted)
            found.append(start_s)
            if due_s < inf and told_s + foretold_s <= due_s:
                self.promised += 1
                self.kept += start_s + run_s <= due_s
        return found

    def starts(self, now_s: float, sizes: Sequence[int]) -> list[float]:
        """The offers: as `ServedLine.starts`, by a forecast that is not too old."""
        if now_s >= self._anew_s:
            self.look_again(now_s)
        return self._forecast.starts(now_s, sizes)

    def load(self, now_s: float) -> float:
        """GPUs of all jobs that wait, less the free ones."""
        known = self._alive(now_s)
        return float(known[:, 3].sum()) - self._gpus

    def look_again(self, now_s: float) -> None:
        """Make the forecast anew from what runs and waits."""
        known = self._alive(now_s)
        runs = known[:, 0] <= now_s
        now = known[runs]
        line = self._forecast = ServedLine(now_s, self._gpus - int(now[:, 3].sum()))
        ends = np.maximum(now[:, 0] + now[:, 2], now_s)
        by_end = np.argsort(ends)  # what is sorted is a heap
        gpus = now[by_end, 3].astype(int).tolist()
        line.ends = list(zip(ends[by_end].tolist(), gpus, strict=True))
        waits = known[~runs]
        for foretold_s, wanted in zip(
            waits[:, 2].tolist(), waits[:, 3].astype(int).tolist(), strict=True
        ):
            line.join(now_s, wanted, foretold_s)
        self._anew_s = now_s + max(_ANEW_S, _ANEW_PER_JOB_S * len(waits))

    def _alive(self, now_s: float) -> Numbers:
        """The jobs that have not ended."""
        if self._news:
            self._known = np.concatenate((self._known, np.reshape(self._news, (-1, _FACTS))))
            self._news = []
        self._known = self._known[self._known[:, 1] > now_s]
        return self._known
