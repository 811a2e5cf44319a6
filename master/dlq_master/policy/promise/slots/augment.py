"""One more job put into a plan slot by slot, each slot found along an augmenting path.

A path begins in a slot that the job could use. It goes from slot to slot by moving one job of the
same width from the first to the second. It ends in a slot where as many GPUs are free. Among jobs
of one width, and if resumes were free, such paths find slots whenever there are any. They cost
stops, so this is the last resort.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dlq_master.model.jobs.band import Segment, Segments
from dlq_master.model.late import np
from dlq_master.policy.promise.capacity.leases import NOISE, Grid, SloJob, due_s
from dlq_master.policy.promise.slots.eject import Ejected
from dlq_master.policy.promise.slots.ledger import PromiseLedger
from dlq_master.policy.promise.slots.plan import SlotPlan, completion_s

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_VISITS = 600  # of slots, over all paths of a job


class _Move(NamedTuple):
    """One job, as a row of the table, moves from one slot to another."""

    row: int
    out_of: int
    into: int


def augment(
    plan: SlotPlan, jobs: Sequence[SloJob], at: int, ledger: PromiseLedger, grid: Grid
) -> Ejected | None:
    """The plan with job `at` at its promised step; None: no paths are found."""
    return _SlotTable(plan, jobs, at, ledger, grid).filled()


class _SlotTable:
    """The jobs as wide as the new one, which is the last row, and the slots that each holds."""

    def __init__(
        self, plan: SlotPlan, jobs: Sequence[SloJob], at: int, ledger: PromiseLedger, grid: Grid
    ) -> None:
        self.plan, self.grid, self.wide = plan, grid, int(ledger.wide[at])
        numbers = [n for n in np.flatnonzero(ledger.wide == self.wide).tolist() if n != at] + [at]
        self.jobs = [jobs[number] for number in numbers]
        slots = len(ledger.free)
        self.held = np.zeros((len(numbers), slots), dtype=bool)
        for row, job in enumerate(self.jobs):
            for begin, end in plan.segments.get(job.key, ()):
                self.held[row, begin:end] = True
        self.within = np.arange(slots) < ledger.last[numbers][:, None]
        self.free = ledger.free.copy()
        self.fixed = np.zeros(len(numbers), dtype=bool)  # jobs that one more segment makes late
        self.fixed[-1] = True
        self.changed: set[int] = {len(numbers) - 1}
        self.visits = 0

    def filled(self) -> Ejected | None:
        """The plan with the new job; None: it gets too few slots."""
        own = len(self.jobs) - 1
        open_ = np.flatnonzero(self.within[own] & (self.free >= self.wide))
        self.held[own, open_] = True
        self.free[open_] -= self.wide
        while not self._in_time(own):
            if not self._another():
                return None
        self._trim(own)
        made = {self.jobs[row].key: _segments(self.held[row]) for row in self.changed}
        return Ejected(SlotPlan({**self.plan.segments, **made}), self.free)

    def _another(self) -> bool:
        """Find one more slot for the new job, along a path that makes no job late."""
        while (path := self._path()) is not None:
            for row, out_of, into in path:
                self.held[row, out_of], self.held[row, into] = False, True
            late = [row for row, *_ in path if not self._in_time(row)]
            if not late:
                self.held[-1, path[0].out_of] = True
                self.free[path[-1].into] -= self.wide
                self.changed |= {row for row, *_ in path}
                return True
            for row, out_of, into in path:
                self.held[row, out_of], self.held[row, into] = True, False
            self.fixed[late] = True
        return False

    def _path(self) -> list[_Move] | None:
        """The shortest path, found by breadth-first search; None: there is none, or too many slots
        were visited.
        """
        starts = np.flatnonzero(self.within[-1] & ~self.held[-1])
        reached_by: dict[int, _Move | None] = dict.fromkeys(starts.tolist())
        seen = np.zeros(len(self.free), dtype=bool)
        seen[starts] = True
        waiting = deque(starts.tolist())
        while waiting and self.visits < MOST_VISITS:
            self.visits += 1
            slot = waiting.popleft()
            rows = np.flatnonzero(self.held[:, slot] & ~self.fixed)
            could = self.within[rows] & ~self.held[rows] & ~seen
            for into in np.flatnonzero(could.any(axis=0)).tolist():
                reached_by[into] = _Move(int(rows[could[:, into].argmax()]), slot, into)
                if self.free[into] >= self.wide:
                    return _traced(reached_by, into)
                seen[into] = True
                waiting.append(into)
        return None

    def _in_time(self, row: int) -> bool:
        """Whether a job meets its promised step with the slots that it holds."""
        job = self.jobs[row]
        by_s = due_s(job, job.promised or 0, self.grid)
        done_s = completion_s(job, _segments(self.held[row]), self.grid)
        return done_s <= by_s + NOISE * self.grid.term_s

    def _trim(self, row: int) -> None:
        """Give back the last slots that a job does not need."""
        for slot in np.flatnonzero(self.held[row])[::-1].tolist():
            self.held[row, slot] = False
            if not self._in_time(row):
                self.held[row, slot] = True
                return
            self.free[slot] += self.wide


def _traced(reached_by: dict[int, _Move | None], end: int) -> list[_Move]:
    """The moves of the path that ends in slot `end`."""
    path = []
    while (move := reached_by[end]) is not None:
        path.append(move)
        end = move.out_of
    return path[::-1]


def _segments(held: NDArray[np.bool_]) -> Segments:
    """Held slots as segments."""
    padded = np.zeros(len(held) + 2, dtype=np.int8)
    padded[1:-1] = held
    edges = np.flatnonzero(np.diff(padded)).tolist()
    return tuple([Segment(begin, end) for begin, end in zip(edges[::2], edges[1::2], strict=True)])
