"""Jobs laid out over slots by sticky least laxity: the integral plan behind a choice of deadlines.

Every slot has this order. First come jobs that cannot wait any longer; then laxity - a log2(width)
- B if the job ran in the slot before; wide jobs first. A job that does not fit is skipped. Laxity
is counted in slots. Only slots with a change are looked at: a completion, a waiting job's last
chance, a change of capacity, or a new winner. B = 0 is plain least laxity; with B = inf running
jobs give way only to last chances.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from math import floor, inf, log2
from typing import NamedTuple

from dlq_master.model.jobs.band import Segment, Segments
from dlq_master.policy.promise.capacity.leases import NOISE, Grid, needed


class SlotTask(NamedTuple):
    """One job with one deadline, `due_s` after the plan's start."""

    width: int
    work_s: float
    resume_s: float
    due_s: float
    running: bool


class Miss(NamedTuple):
    """A task that could not wait beyond `slot`, where it found `lack` GPUs too few."""

    task: int
    slot: int
    lack: int


class Layout(NamedTuple):
    """The segments of each task; those of tasks that miss their deadline are empty."""

    segments: list[Segments]
    missed: list[Miss]


def lay_out(
    tasks: Sequence[SlotTask], grid: Grid, wide: float, stay: float, *, all_or_nothing: bool = False
) -> Layout:
    """Every task that meets its deadline in this order, with a = `wide` and B = `stay`.

    `all_or_nothing`: end with the first miss; the segments are then of no use.
    """
    return _Table(tasks, grid, wide, stay).filled(all_or_nothing)


class _Table:
    """`since` is the slot in which a running task's segment began, -1 while it waits; `charge_s`
    what that segment spends on resuming; `base` a waiting task's key in slot 0 (it falls by 1 a
    slot), and `chance` the last slot in which it can go on. A running task's rank, (can it wait,
    key, -width, task), does not change while it runs: it is in `running`, and its key in `worst`.
    """

    def __init__(self, tasks: Sequence[SlotTask], grid: Grid, wide: float, stay: float) -> None:
        self.tasks, self.grid, self.stay = tasks, grid, stay
        count = len(tasks)
        self.bonus = [wide * log2(task.width) for task in tasks]
        self.rest_s = [task.work_s for task in tasks]
        self.since, self.charge_s = [-1] * count, [0.0] * count
        self.base, self.chance = [0.0] * count, [0] * count
        self.over = [False] * count
        self.segments: list[list[Segment]] = [[] for _ in tasks]
        self.running: dict[int, tuple[bool, float, int, int]] = {}
        self.worst: list[tuple[float, int, int]] = []  # -key, task, since
        self.queues: dict[int, list[tuple[float, int]]] = {}  # by width
        self.chances: list[tuple[int, int]] = []
        self.ends: list[tuple[int, int, int]] = []
        self.due: list[int] = []  # whose last chance is this slot
        self.missed: list[Miss] = []
        self.free = grid.at(0)

    def filled(self, all_or_nothing: bool) -> Layout:
        for task in range(len(self.tasks)):
            self._wait(task, 0)
        self._gather(0)
        if not self._take_chances(0):
            self._rank(0)
        self._fill(0)
        slot = self._next(0)
        while slot is not None and not (all_or_nothing and self.missed):
            self.free += self.grid.at(slot) - self.grid.at(slot - 1)
            self._complete(slot)
            self._gather(slot)
            if self.free < 0 or not self._take_chances(slot) or self._outranked() < slot:
                self._rank(slot)
            self._fill(slot)
            slot = self._next(slot)
        return Layout([tuple(made) for made in self.segments], sorted(self.missed))

    def _next(self, slot: int) -> int | None:
        while self.ends and self.since[self.ends[0][1]] != self.ends[0][2]:
            heappop(self.ends)
        while self.chances and not self._waits(*self.chances[0]):
            heappop(self.chances)
        if not self.ends and not self.chances:
            return None
        times = [self.ends[0][0] if self.ends else inf, self.chances[0][0] if self.chances else inf]
        if slot + 1 < len(self.grid.capacity):
            times.append(slot + 1)
        return max(slot + 1, int(min(*times, self._outranked() + 1)))

    def _waits(self, chance: int, task: int) -> bool:
        return not self.over[task] and self.since[task] < 0 and self.chance[task] == chance

    def _outranked(self) -> float:
        """The last slot in which no waiting task outranks one that runs."""
        if self.stay == inf or not self.running:
            return inf
        worst = self.worst
        while self.since[worst[0][1]] != worst[0][2]:
            heappop(worst)
        best = min((queue[0][0] for queue in self._queues().values()), default=inf)
        return inf if best == inf else floor(best + worst[0][0])

    def _rank_of(self, task: int, since: int) -> tuple[bool, float, int, int]:
        """Of a task that runs from `since` on; of those that cannot wait when they have run a
        slot.
        """
        made, term_s = self.tasks[task], self.grid.term_s
        rest_s = self.rest_s[task] + self.charge_s[task]
        lax = made.due_s / term_s - since - rest_s / term_s
        waits = floor((made.due_s - rest_s - made.resume_s) / term_s + NOISE) > since
        return waits, lax - self.bonus[task] - self.stay, -made.width, task

    def _queues(self) -> dict[int, list[tuple[float, int]]]:
        """The waiting tasks by width, each with a true first."""
        for width, queue in list(self.queues.items()):
            while queue and (self.over[queue[0][1]] or self.since[queue[0][1]] >= 0
                             or self.base[queue[0][1]] != queue[0][0]):  # fmt: skip
                heappop(queue)
            if not queue:
                del self.queues[width]
        return self.queues

    def _wait(self, task: int, slot: int, lack: int = 0) -> None:
        """Into the queues; missed if it is too late already."""
        made, term_s = self.tasks[task], self.grid.term_s
        self.since[task] = -1
        first_s = 0.0 if made.running and slot == 0 else made.resume_s
        chance = floor((made.due_s - self.rest_s[task] - made.resume_s) / term_s + NOISE)
        if chance < slot and (first_s + self.rest_s[task] > made.due_s + NOISE * term_s or slot):
            self._miss(task, max(0, slot - 1), lack)
            return
        rest = (self.rest_s[task] + first_s) / term_s
        self.base[task] = made.due_s / term_s - rest - self.bonus[task]
        self.chance[task] = max(chance, slot)
        heappush(self.queues.setdefault(made.width, []), (self.base[task], task))
        heappush(self.chances, (self.chance[task], task))

    def _miss(self, task: int, slot: int, lack: int) -> None:
        self.over[task] = True
        self.since[task] = -1
        self.segments[task].clear()
        self.missed.append(Miss(task, slot, lack))

    def _start(self, task: int, slot: int) -> None:
        made = self.tasks[task]
        self.charge_s[task] = 0.0 if made.running and slot == 0 else made.resume_s
        self.since[task] = slot
        self.free -= made.width
        self.running[task] = rank = self._rank_of(task, slot)
        if self.stay < inf:
            heappush(self.worst, (-rank[1], task, slot))
        end = slot + needed(self.rest_s[task] + self.charge_s[task], self.grid.term_s)
        heappush(self.ends, (end, task, slot))

    def _stop(self, task: int, slot: int) -> None:
        since = self.since[task]
        spent_s = (slot - since) * self.grid.term_s - self.charge_s[task]
        self.rest_s[task] -= max(0.0, spent_s)
        self.segments[task].append(Segment(since, slot))
        self.since[task] = -1
        self.free += self.tasks[task].width
        del self.running[task]

    def _complete(self, slot: int) -> None:
        while self.ends and self.ends[0][0] <= slot:
            _, task, since = heappop(self.ends)
            if self.since[task] == since and task in self.running:
                self._stop(task, slot)
                self.over[task] = True

    def _gather(self, slot: int) -> None:
        self.due = []
        while self.chances and self.chances[0][0] <= slot:
            chance, task = heappop(self.chances)
            # A job that stopped and waits again with the same chance has two entries.
            if self._waits(chance, task) and task not in self.due:
                self.due.append(task)

    def _take_chances(self, slot: int) -> bool:
        """Start those who cannot wait; False, and nothing is done, if they do not all fit."""
        if sum(self.tasks[task].width for task in self.due) > self.free:
            return False
        for task in self.due:
            self._start(task, slot)
        return True

    def _fill(self, slot: int) -> None:
        while self.free > 0:
            fits = [
                (queue[0][0], -width, queue[0][1])
                for width, queue in self._queues().items()
                if width <= self.free
            ]
            if not fits:
                return
            self._start(min(fits)[2], slot)

    def _ranked(self, slot: int) -> list[tuple[bool, float, int, int]]:
        """Jobs that may be given a slot by rank. Where nobody outranks a running task the others
        only fill.
        """
        waiting: Iterable[int] = self.due
        if self.stay < inf:
            waiting = (task for task, over in enumerate(self.over) if not over)
        ranked = list(self.running.values())
        ranked += [
            (self.chance[task] > slot, self.base[task] - slot, -self.tasks[task].width, task)
            for task in waiting
            if self.since[task] < 0
        ]
        return sorted(ranked)

    def _rank(self, slot: int) -> None:
        """The whole order anew: the jobs that run in this slot, that stop, and that have missed."""
        order = self._ranked(slot)
        free = self.grid.at(slot)
        chosen = []
        for _, _, narrow, task in order:
            if free + narrow >= 0:
                free += narrow
                chosen.append(task)
                if not free:
                    break
        kept = set(chosen)
        for task in [task for task in self.running if task not in kept]:
            self._stop(task, slot)
            self._wait(task, slot + 1, self.tasks[task].width - free)
        for task in self.due:
            if task not in kept:
                self._miss(task, slot, self.tasks[task].width - free)
        for task in chosen:
            if self.since[task] < 0:
                self._start(task, slot)
