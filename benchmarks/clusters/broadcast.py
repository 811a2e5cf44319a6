"""Broadcast: all clusters get every job, and the first start cancels the others a little later.

All clusters have the same queue then, so the oldest waiting job is the next one everywhere. It
starts where there is room first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from benchmarks.clusters.drawn_jobs import DrawnJobs, Numbers

# A cancel of a copy reaches its cluster so much later, in s.
CANCEL_S = 0.2
# Of one job in so many, second starts are counted at each end of a job elsewhere.
_COUNTED = 16


def play_broadcast(
    jobs: DrawnJobs, members: int, gpus: int, seed: int, tell: Callable[[int], None]
) -> tuple[Numbers, int]:
    """The starts of all jobs, and the number of second starts: copies that start before the cancel.

    A copy is taken to leave at once; the GPU-time of its start is not counted.
    """
    clusters = _Clusters(members, gpus, seed)
    starts_s = np.empty(len(jobs.submit_s))
    front_s = 0.0  # no job starts before an older one
    facts = (jobs.submit_s.tolist(), jobs.gpus.tolist(), jobs.run_s.tolist())
    for job, (at_s, wanted, run_s) in enumerate(zip(*facts, strict=True)):
        front_s = clusters.started(max(front_s, at_s), wanted, run_s)
        starts_s[job] = front_s
        if job % 50_000 == 0:
            tell(job)
    return starts_s, clusters.doubles


class _Clusters:
    def __init__(self, members: int, gpus: int, seed: int) -> None:
        self._free = np.full(members, gpus)
        self._ends: list[tuple[float, int, int]] = []  # a heap: end, cluster, GPUs
        self._any: list[int] = np.random.default_rng((seed, 2)).permutation(members).tolist()
        self._turn = self._starts = 0
        # Second starts are looked for: the cancel of this job arrives then; GPUs; clusters that
        # have looked at their copy.
        self._copies: deque[tuple[float, int, set[int]]] = deque()
        self.doubles = 0

    def started(self, at_s: float, wanted: int, run_s: float) -> float:
        """The start of the next job: at this instant, or when a cluster has room."""
        ends = self._ends
        while ends and ends[0][0] <= at_s:
            self._ended()
        room = self._free >= wanted
        count = int(np.count_nonzero(room))
        self.doubles += max(0, count - 1)
        number = self._first(room) if count else -1
        while number < 0 or self._free[number] < wanted:
            at_s, number = self._ended()
        self._free[number] -= wanted
        heappush(ends, (at_s + run_s, number, wanted))
        self._starts += 1
        if self._starts % _COUNTED == 0:
            looked = set(np.flatnonzero(room).tolist()) | {number}
            self._copies.append((at_s + CANCEL_S, wanted, looked))
        return at_s

    def _first(self, room: NDArray[np.bool_]) -> int:
        """Any of the clusters with room, in turn."""
        while True:
            self._turn = (self._turn + 1) % len(self._any)
            if room[self._any[self._turn]]:
                return self._any[self._turn]

    def _ended(self) -> tuple[float, int]:
        """The next end of a job: its instant and cluster."""
        end_s, number, gpus = heappop(self._ends)
        self._free[number] += gpus
        while self._copies and self._copies[0][0] <= end_s:
            self._copies.popleft()
        for _, wanted, looked in self._copies:
            if number not in looked:
                looked.add(number)
                self.doubles += _COUNTED * int(self._free[number] >= wanted)
        return end_s, number
