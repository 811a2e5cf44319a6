"""Waiting jobs: one line per priority and shape, so that work never grows with the queue."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, MutableMapping
from copy import copy
from functools import cache
from itertools import takewhile

from sortedcontainers import SortedList

from dlq_master.model.ids import JobId
from dlq_master.model.resources import Shape

Fifo = MutableMapping[JobId, int]  # job -> position, in the order of positions
Stands = Callable[[JobId], int]  # its position
TeamOf = Callable[[JobId], str]


class _SortedItems(ItemsView[JobId, int]):
    """Without a look at each job's position."""

    __slots__ = ("_jobs",)

    def __init__(self, line: Mapping[JobId, int], jobs: Iterable[tuple[int, JobId]]) -> None:
        super().__init__(line)
        self._jobs = jobs

    def __iter__(self) -> Iterator[tuple[JobId, int]]:
        return ((job_id, position) for position, job_id in self._jobs)


class Sorted(MutableMapping[JobId, int]):
    """A line into which jobs come anywhere, in O(log n)."""

    __slots__ = ("_jobs", "_positions")

    def __init__(self, positions: Mapping[JobId, int]) -> None:
        self._positions = dict(positions)
        self._jobs: SortedList[tuple[int, JobId]] = SortedList(
            (position, job_id) for job_id, position in self._positions.items()
        )

    def __getitem__(self, job_id: JobId) -> int:
        return self._positions[job_id]

    def __setitem__(self, job_id: JobId, position: int) -> None:
        if job_id in self._positions:
            del self[job_id]
        self._positions[job_id] = position
        self._jobs.add((position, job_id))

    def __delitem__(self, job_id: JobId) -> None:
        self._jobs.remove((self._positions.pop(job_id), job_id))

    def __iter__(self) -> Iterator[JobId]:
        return (job_id for _, job_id in self._jobs)

    def __len__(self) -> int:
        return len(self._positions)

    def items(self) -> ItemsView[JobId, int]:
        return _SortedItems(self, self._jobs)

    def before(self, position: int) -> int:
        """How many stand before it, in O(log n)."""
        count: int = self._jobs.bisect_left((position,))
        return count


def count_before(fifo: Fifo, position: int) -> int:
    """How many of a line stand before a position; costs the way from the nearer end."""
    if isinstance(fifo, Sorted):
        return fifo.before(position)
    if not isinstance(fifo, dict):
        return sum(1 for _ in takewhile(lambda each: each < position, fifo.values()))
    from_both_ends = zip(fifo.values(), reversed(fifo.values()), strict=True)
    for steps, (head, tail) in enumerate(from_both_ends):
        if head >= position:
            return steps
        if tail < position:
            return len(fifo) - steps
    return len(fifo)


# The first job of a line: its position, itself, the shape of the line. No two positions are alike.
Front = tuple[int, JobId, Shape]


class WaitingLines(dict[Shape, Fifo]):
    """The lines of one priority. Their first jobs are kept in order once a caller has asked for
    them. So a walk past the first of many lines looks at no other line.
    """

    __slots__ = ("_by_key", "_fronts")

    def __init__(self, lines: Mapping[Shape, Fifo] | None = None, *, by_key: bool = False) -> None:
        super().__init__(lines or {})
        self._by_key = by_key
        self._fronts: SortedList[Front] | None = None

    def fronts(self) -> Iterator[Front]:
        """The first job of each line, in order."""
        fronts = self._fronts
        if fronts is None:
            fronts = self._fronts = SortedList([self._front(shape) for shape in self])
        return iter(fronts)

    def add(self, shape: Shape, job_id: JobId, position: int) -> None:
        """A job comes into the line of its shape, which may be new."""
        fifo = self.get(shape)
        if fifo is None:
            fifo = self[shape] = Sorted({}) if self._by_key else OrderedDict()
        before = self._front(shape) if fifo and self._fronts is not None else None
        if isinstance(fifo, OrderedDict):
            _insert(fifo, job_id, position)
        else:
            fifo[job_id] = position
        if self._fronts is not None:
            self._moved(before, self._front(shape))

    def remove(self, shape: Shape, job_id: JobId) -> None:
        """It leaves, and with the last one its line."""
        fifo = self[shape]
        before = self._front(shape) if self._fronts is not None else None
        del fifo[job_id]
        if not fifo:
            del self[shape]
        if before is not None:
            self._moved(before, self._front(shape) if fifo else None)

    def resort(self, stands: Stands) -> None:
        """Everybody has another position, in lines by key."""
        self._fronts = None
        for shape, fifo in self.items():
            self[shape] = Sorted({job_id: stands(job_id) for job_id in fifo})

    def _front(self, shape: Shape) -> Front:
        job_id, position = next(iter(self[shape].items()))
        return position, job_id, shape

    def _moved(self, before: Front | None, front: Front | None) -> None:
        """Another job is the first of its line."""
        fronts = self._fronts
        assert fronts is not None
        if before is not None and before != front:
            fronts.remove(before)
        if front is not None and before != front:
            fronts.add(front)


class WaitingIndex:
    """Jobs of one priority and shape are interchangeable: only the first of each needs a look.

    `by_key`: positions are no order of arrival, so that a job may come anywhere into its line.
    """

    __slots__ = ("by_key", "by_priority", "count", "gpus", "priorities")

    def __init__(self, *, by_key: bool = False) -> None:
        self.by_key = by_key
        self.priorities: list[int] = []  # sorted, those with waiting jobs
        self.by_priority: dict[int, WaitingLines] = {}
        self.count = 0
        self.gpus = 0

    def add(self, priority: int, shape: Shape, job_id: JobId, sequence: int) -> None:
        lines = self.by_priority.get(priority)
        if lines is None:
            lines = self.by_priority[priority] = WaitingLines(by_key=self.by_key)
            insort(self.priorities, priority)
        lines.add(shape, job_id, sequence)
        self.count += 1
        self.gpus += shape.gpus

    def remove(self, priority: int, shape: Shape, job_id: JobId) -> None:
        lines = self.by_priority[priority]
        lines.remove(shape, job_id)
        if not lines:
            del self.by_priority[priority]
            del self.priorities[bisect_left(self.priorities, priority)]
        self.count -= 1
        self.gpus -= shape.gpus

    def rearranged(self, moved: Iterable[tuple[int, Shape, JobId, int]]) -> WaitingIndex:
        """Another index with these jobs in these positions, by priority and shape. It shares all
        lines in which no job moves, and nothing is added to it.
        """
        other = copy(self)
        other.by_priority = dict(self.by_priority)
        positions: dict[tuple[int, Shape], dict[JobId, int]] = {}
        for priority, shape, job_id, position in moved:
            positions.setdefault((priority, shape), {})[job_id] = position
        for priority in {priority for priority, _ in positions}:
            lines = WaitingLines(self.by_priority[priority], by_key=True)
            other.by_priority[priority] = lines
        for (priority, shape), places in positions.items():
            line = other.by_priority[priority]
            line[shape] = Sorted({**line[shape], **places})
        return other

    def without(self, left_out: Iterable[tuple[int, Shape, JobId]]) -> WaitingIndex:
        """Another index without these jobs, by priority and shape. It shares all other lines, and
        nothing is added to it.
        """
        other = copy(self)
        other.priorities, other.by_priority = [*self.priorities], dict(self.by_priority)
        for priority, shape, job_id in left_out:
            if job_id in self.by_priority[priority][shape]:
                other._leave_out(self, priority, shape, job_id)
        return other

    def _leave_out(self, shared: WaitingIndex, priority: int, shape: Shape, job_id: JobId) -> None:
        lines = self.by_priority[priority]
        if lines is shared.by_priority[priority]:
            lines = self.by_priority[priority] = WaitingLines(lines, by_key=self.by_key)
        if lines[shape] is shared.by_priority[priority][shape]:
            line = lines[shape]
            places = dict(line.items())
            lines[shape] = Sorted(places) if isinstance(line, Sorted) else OrderedDict(places)
        lines.remove(shape, job_id)
        if not lines:
            del self.by_priority[priority]
            del self.priorities[bisect_left(self.priorities, priority)]
        self.count -= 1
        self.gpus -= shape.gpus

    def resort(self, stands: Stands) -> None:
        """Everybody has another position, in an index by key."""
        for lines in self.by_priority.values():
            lines.resort(stands)


class WaitingByTeam(WaitingIndex):
    """Likewise, and the lines of each team or account: a quota does not read the queue."""

    __slots__ = ("_stands_in", "_team_of", "teams")

    def __init__(self, team_of: TeamOf, *, by_key: bool = False) -> None:
        super().__init__(by_key=by_key)
        self._team_of = team_of
        self._stands_in: dict[JobId, str] = {}  # a job with another team leaves the old line
        self.teams: dict[str, WaitingIndex] = {}

    def add(self, priority: int, shape: Shape, job_id: JobId, sequence: int) -> None:
        super().add(priority, shape, job_id, sequence)
        team = self._stands_in[job_id] = self._team_of(job_id)
        if team not in self.teams:
            self.teams[team] = WaitingIndex(by_key=self.by_key)
        self.teams[team].add(priority, shape, job_id, sequence)

    def remove(self, priority: int, shape: Shape, job_id: JobId) -> None:
        super().remove(priority, shape, job_id)
        team = self._stands_in.pop(job_id)
        lines = self.teams[team]
        lines.remove(priority, shape, job_id)
        if not lines.count:
            del self.teams[team]

    def resort(self, stands: Stands) -> None:
        once = cache(stands)  # everybody stands in two lines
        super().resort(once)
        for lines in self.teams.values():
            lines.resort(once)


def _insert(fifo: OrderedDict[JobId, int], job_id: JobId, sequence: int) -> None:
    """Keep the FIFO in order; nearly every job belongs at the tail or close to the head."""
    if not fifo or sequence > fifo[next(reversed(fifo))]:
        fifo[job_id] = sequence
        return
    ahead = []
    for other, position in fifo.items():
        if position > sequence:
            break
        ahead.append(other)
    fifo[job_id] = sequence
    fifo.move_to_end(job_id, last=False)
    for other in reversed(ahead):
        fifo.move_to_end(other, last=False)
