"""Jobs laid out over slots by sticky least laxity: the plan for a choice of deadlines.

In each slot, tasks that cannot wait any longer come first. Then the order is by laxity - a
log2(width) - B if the task ran in the slot before, and wide tasks first. A task that does not fit
is skipped. Laxity is counted in slots. B = 0 is plain least laxity; with B = inf running tasks give
way only to last chances.

Only slots with an event are visited. Events are a completion, a waiting task's last chance, and a
change of capacity. So is a waiting task that outranks a running one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from math import floor, inf, log2
from typing import NamedTuple

from dlq_master.model.jobs.band import Segment, Segments
from dlq_master.policy.promise.capacity.leases import NOISE, Grid, needed


class SlotTask(NamedTuple):
    """A job with one deadline, `due_s` seconds after the plan's start."""

    width: int
    work_s: float
    resume_s: float
    due_s: float
    running: bool


class Miss(NamedTuple):
    """A task whose last chance was `slot`, where `lack` GPUs were missing."""

    task: int
    slot: int
    lack: int


class Layout(NamedTuple):
    """The segments of each task; a task that misses its deadline has none."""

    segments: list[Segments]
    missed: list[Miss]


def lay_out(
    tasks: Sequence[SlotTask], grid: Grid, wide: float, stay: float, *, all_or_nothing: bool = False
) -> Layout:
    """Lay the tasks out in this order, with a = `wide` and B = `stay`.

    `all_or_nothing`: stop at the first miss; the segments are then useless.
    """
    return _Schedule(tasks, grid, wide, stay).filled(all_or_nothing)


class _Schedule:
    """The state of the layout while it goes from slot to slot.

    `since`: the slot in which a running task's segment began; -1: it waits. `charge_s`: the seconds
    of that segment for a resume. `base`: a waiting task's key in slot 0, which falls by 1 per slot.
    `chance`: the last slot in which it can start. A running task's rank, (can it wait, key, -width,
    task), is constant while it runs. It is in `running`, and its key in `worst`.
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
        self.due: list[int] = []  # waiting tasks whose last chance is this slot
        self.missed: list[Miss] = []
        self.free = grid.at(0)

    def filled(self, all_or_nothing: bool) -> Layout:
        """The layout of all tasks."""
        for task in range(len(self.tasks)):
            self._wait(task, 0)
        self._gather_last_chances(0)
        if not self._take_chances(0):
            self._reorder(0)
        self._fill(0)
        slot = self._next_event(0)
        while slot is not None and not (all_or_nothing and self.missed):
            self.free += self.grid.at(slot) - self.grid.at(slot - 1)
            self._complete(slot)
            self._gather_last_chances(slot)
            if self.free < 0 or not self._take_chances(slot) or self._outranked() < slot:
                self._reorder(slot)
            self._fill(slot)
            slot = self._next_event(slot)
        return Layout([tuple(made) for made in self.segments], sorted(self.missed))

    def _next_event(self, slot: int) -> int | None:
        """The next slot after `slot` with an event; None: there is none."""
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
        """Whether this entry of `chances` is still true: the task waits with this last chance."""
        return not self.over[task] and self.since[task] < 0 and self.chance[task] == chance

    def _outranked(self) -> float:
        """The last slot in which no waiting task outranks a running one."""
        if self.stay == inf or not self.running:
            return inf
        worst = self.worst
        while self.since[worst[0][1]] != worst[0][2]:
            heappop(worst)
        best = min((queue[0][0] for queue in self._queues().values()), default=inf)
        return inf if best == inf else floor(best + worst[0][0])

    def _rank_of(self, task: int, since: int) -> tuple[bool, float, int, int]:
        """The rank of a task that runs from `since` on."""
        made, term_s = self.tasks[task], self.grid.term_s
        rest_s = self.rest_s[task] + self.charge_s[task]
        lax = made.due_s / term_s - since - rest_s / term_s
        waits = floor((made.due_s - rest_s - made.resume_s) / term_s + NOISE) > since
        return waits, lax - self.bonus[task] - self.stay, -made.width, task

    def _queues(self) -> dict[int, list[tuple[float, int]]]:
        """The waiting tasks by width, as heaps with a valid first entry."""
        for width, queue in list(self.queues.items()):
            while queue and (self.over[queue[0][1]] or self.since[queue[0][1]] >= 0
                             or self.base[queue[0][1]] != queue[0][0]):  # fmt: skip
                heappop(queue)
            if not queue:
                del self.queues[width]
        return self.queues

    def _wait(self, task: int, slot: int, lack: int = 0) -> None:
        """Queue a task, or miss it if it is too late."""
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
        """Drop a task that cannot meet its deadline."""
        self.over[task] = True
        self.since[task] = -1
        self.segments[task].clear()
        self.missed.append(Miss(task, slot, lack))

    def _start(self, task: int, slot: int) -> None:
        """Start a task's segment in this slot."""
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
        """End a task's segment before this slot."""
        since = self.since[task]
        spent_s = (slot - since) * self.grid.term_s - self.charge_s[task]
        self.rest_s[task] -= max(0.0, spent_s)
        self.segments[task].append(Segment(since, slot))
        self.since[task] = -1
        self.free += self.tasks[task].width
        del self.running[task]

    def _complete(self, slot: int) -> None:
        """Stop the tasks that have ended by this slot."""
        while self.ends and self.ends[0][0] <= slot:
            _, task, since = heappop(self.ends)
            if self.since[task] == since and task in self.running:
                self._stop(task, slot)
                self.over[task] = True

    def _gather_last_chances(self, slot: int) -> None:
        """Set `due` to the waiting tasks whose last chance is this slot."""
        self.due = []
        while self.chances and self.chances[0][0] <= slot:
            chance, task = heappop(self.chances)
            # A job that stopped and waits again with the same chance has two entries.
            if self._waits(chance, task) and task not in self.due:
                self.due.append(task)

    def _take_chances(self, slot: int) -> bool:
        """Start all tasks of `due` if they fit together; False: nothing is done."""
        if sum(self.tasks[task].width for task in self.due) > self.free:
            return False
        for task in self.due:
            self._start(task, slot)
        return True

    def _fill(self, slot: int) -> None:
        """Start waiting tasks on free GPUs, in their order."""
        while self.free > 0:
            fits = [
                (queue[0][0], -width, queue[0][1])
                for width, queue in self._queues().items()
                if width <= self.free
            ]
            if not fits:
                return
            self._start(min(fits)[2], slot)

    def _in_order(self, slot: int) -> list[tuple[bool, float, int, int]]:
        """The tasks that may get this slot, by rank. With B = inf only running tasks and last
        chances.
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

    def _reorder(self, slot: int) -> None:
        """Decide this slot anew: start, stop and miss tasks."""
        order = self._in_order(slot)
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
