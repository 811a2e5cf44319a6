"""Waiting jobs: one line per priority and shape, so that work never grows with the queue."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, MutableMapping
from copy import copy
from functools import cache
from itertools import takewhile
from typing import Any, TypeVar

from sortedcontainers import SortedList

from dlq_master.model.ids import JobId
from dlq_master.model.order.keys import Moving
from dlq_master.model.resources import Shape

Fifo = MutableMapping[JobId, int]  # job -> position, in the order of positions
Stands = Callable[[JobId], int]  # its position
# Its position, as it is kept: see `Drifting`.
Placed = Callable[[JobId], tuple[int, Moving]]
TeamOf = Callable[[JobId], str]

_NOT, _TOGETHER, _ALONE = Moving.NOT, Moving.TOGETHER, Moving.ALONE


class _SortedItems(ItemsView[JobId, int]):
    """Without a look at each job's position."""

    __slots__ = ("_jobs",)

    def __init__(self, line: Mapping[JobId, int], jobs: Iterable[tuple[int, JobId]]) -> None:
        self._mapping, self._jobs = line, jobs

    def __iter__(self) -> Iterator[tuple[JobId, int]]:
        return ((job_id, position) for position, job_id in self._jobs)


class Sorted(MutableMapping[JobId, int]):
    """A line into which jobs come anywhere, in O(log n)."""

    __slots__ = ("_jobs", "positions")

    def __init__(self, positions: Mapping[JobId, int]) -> None:
        self.positions = dict(positions)
        self._jobs: SortedList[tuple[int, JobId]] = SortedList(
            (position, job_id) for job_id, position in self.positions.items()
        )

    def __getitem__(self, job_id: JobId) -> int:
        return self.positions[job_id]

    def __setitem__(self, job_id: JobId, position: int) -> None:
        if job_id in self.positions:
            del self[job_id]
        self.positions[job_id] = position
        self._jobs.add((position, job_id))

    def __delitem__(self, job_id: JobId) -> None:
        self._jobs.remove((self.positions.pop(job_id), job_id))

    def __iter__(self) -> Iterator[JobId]:
        return (job_id for _, job_id in self._jobs)

    def __len__(self) -> int:
        return len(self.positions)

    def items(self) -> ItemsView[JobId, int]:
        return _SortedItems(self, self._jobs)

    def move(self, positions: Mapping[JobId, int]) -> None:
        """These of its jobs have other positions: O(those log n); O(n log n) if they are many."""
        if len(positions) * _FEW > len(self):
            self.positions |= positions
            self._jobs = SortedList((at, job_id) for job_id, at in self.positions.items())
        else:
            for job_id, position in positions.items():
                self[job_id] = position

    def before(self, position: int) -> int:
        """How many stand before it, in O(log n)."""
        count: int = self._jobs.bisect_left((position,))
        return count

    def ranked(self) -> Iterator[tuple[int, JobId]]:
        """Positions and jobs, in order."""
        return iter(self._jobs)

    def at(self, place: int) -> tuple[int, JobId]:
        """The position and the job at a place of the line."""
        found: tuple[int, JobId] = self._jobs[place]
        return found


_FEW = 8  # one move costs as much as so many places of a line that is made anew
_EMPTY = Sorted({})  # nothing is put into it


class Drift:
    """Jobs that move together are kept by the positions that they would have if nothing had been
    learned. Their present positions are worked out when a caller asks, and kept until more is
    learned.
    """

    __slots__ = ("known", "stands")

    def __init__(self) -> None:
        self.stands: Stands | None = None  # None: nothing has been learned
        self.known: dict[JobId, int] = {}

    def learn(self, stands: Stands | None) -> None:
        """All of them stand elsewhere from here on."""
        self.stands = stands
        self.known.clear()

    def position(self, job_id: JobId, unlearned: int) -> int:
        """Its present position."""
        if self.stands is None:
            return unlearned
        found = self.known.get(job_id)
        if found is None:
            found = self.known[job_id] = self.stands(job_id)
        return found


class Drifting(MutableMapping[JobId, int]):
    """A sorted line of which some jobs keep their order among themselves, whatever is learned. So
    to learn costs as much as there are jobs that move alone.
    """

    __slots__ = ("_drift", "firm", "together")

    def __init__(self, drift: Drift) -> None:
        self._drift = drift
        self.firm = _EMPTY  # at their positions
        self.together = _EMPTY  # at those that they would have if nothing had been learned

    def emptied(self) -> Drifting:
        """Another line, without its jobs."""
        return Drifting(self._drift)

    def put(self, job_id: JobId, position: int, moving: Moving) -> None:
        """A job that is not in the line comes into it."""
        if moving is _TOGETHER:
            if self.together is _EMPTY:
                self.together = Sorted({})
            self.together[job_id] = position
        else:
            if self.firm is _EMPTY:
                self.firm = Sorted({})
            self.firm[job_id] = position

    def __setitem__(self, job_id: JobId, position: int) -> None:
        if job_id in self.together.positions:
            del self[job_id]
        self.put(job_id, position, _NOT)

    def __getitem__(self, job_id: JobId) -> int:
        unlearned = self.together.positions.get(job_id)
        if unlearned is None:
            return self.firm.positions[job_id]
        return self._drift.position(job_id, unlearned)

    def __delitem__(self, job_id: JobId) -> None:
        if job_id in self.together.positions:
            del self.together[job_id]
            self._drift.known.pop(job_id, None)
        else:
            del self.firm[job_id]

    def __contains__(self, job_id: object) -> bool:
        return job_id in self.firm.positions or job_id in self.together.positions

    def __iter__(self) -> Iterator[JobId]:
        if not self.together.positions:
            return iter(self.firm)
        alone = not self.firm.positions
        return iter(self.together) if alone else (job_id for _, job_id in self.ranked())

    def __len__(self) -> int:
        return len(self.firm.positions) + len(self.together.positions)

    def items(self) -> ItemsView[JobId, int]:
        if not self.together.positions:
            return self.firm.items()
        if self._drift.stands is None and not self.firm.positions:
            return self.together.items()
        return _SortedItems(self, self.ranked())

    def ranked(self) -> Iterator[tuple[int, JobId]]:
        """Positions and jobs, in order."""
        if not self.together.positions:
            return self.firm.ranked()
        at = self._drift.position
        moved = ((at(job_id, unlearned), job_id) for unlearned, job_id in self.together.ranked())
        return _merged(self.firm.ranked(), moved) if self.firm.positions else moved

    def before(self, position: int) -> int:
        """How many stand before it, in O(log n)."""
        together, at = self.together, self._drift.position
        low, high = 0, len(together)
        while low < high:
            middle = (low + high) // 2
            unlearned, job_id = together.at(middle)
            if at(job_id, unlearned) < position:
                low = middle + 1
            else:
                high = middle
        return low + self.firm.before(position)


R = TypeVar("R", bound=tuple[Any, ...])


def _merged(some: Iterator[R], others: Iterator[R]) -> Iterator[R]:
    """Both, which come in order, in order."""
    one, other = next(some, None), next(others, None)
    while one is not None and other is not None:
        if one[0] < other[0]:
            yield one
            one = next(some, None)
        else:
            yield other
            other = next(others, None)
    if one is not None:
        yield one
        yield from some
    if other is not None:
        yield other
        yield from others


def count_before(fifo: Fifo, position: int) -> int:
    """How many of a line stand before a position; costs the way from the nearer end."""
    if isinstance(fifo, Sorted | Drifting):
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

    The first jobs of those that move together are kept apart, as in `Drifting`. So a line may have
    two of them.
    """

    __slots__ = ("_alone", "_by_key", "_drift", "_fronts", "_together")

    def __init__(
        self,
        lines: Mapping[Shape, Fifo] | None = None,
        *,
        by_key: bool = False,
        drift: Drift | None = None,
    ) -> None:
        super().__init__(lines or {})
        self._by_key, self._drift = by_key, drift
        self._fronts: SortedList[Front] | None = None
        self._together: SortedList[Front] | None = None
        self._alone: dict[JobId, Shape] = {}  # jobs that move alone

    def fronts(self) -> Iterator[Front]:
        """The first job of each line, in order."""
        fronts = self._fronts
        if fronts is None:
            fronts = self._fronts = self._firsts()
        drift = self._drift
        if drift is None or not self._together:
            return iter(fronts)
        moved = (
            (drift.position(job_id, unlearned), job_id, shape)
            for unlearned, job_id, shape in self._together
        )
        return _first_of_each(_merged(iter(fronts), moved)) if fronts else moved

    def _firsts(self) -> SortedList[Front]:
        if self._drift is None:
            return SortedList([_front(shape, fifo) for shape, fifo in self.items()])
        lines: list[tuple[Shape, Drifting]] = list(self.items())  # type: ignore[arg-type]
        together = [_front(shape, line.together) for shape, line in lines if line.together]
        self._together = SortedList(together)
        return SortedList([_front(shape, line.firm) for shape, line in lines if line.firm])

    def add(self, shape: Shape, job_id: JobId, position: int, moving: Moving = _NOT) -> None:
        """A job comes into the line of its shape, which may be new."""
        fifo = self.get(shape)
        if fifo is None:
            fifo = self[shape] = self._line()
        # Not isinstance: that asks an abstract base class, in Python, for each job.
        if type(fifo) is Drifting:
            self._put(shape, fifo, job_id, position, moving)
            return
        before = _front(shape, fifo) if fifo and self._fronts is not None else None
        if isinstance(fifo, OrderedDict):
            _insert(fifo, job_id, position)
        else:
            fifo[job_id] = position
        if self._fronts is not None:
            _moved(self._fronts, before, _front(shape, fifo))

    def _line(self) -> Fifo:
        if self._drift is not None:
            return Drifting(self._drift)
        return Sorted({}) if self._by_key else OrderedDict()

    def _put(
        self, shape: Shape, line: Drifting, job_id: JobId, position: int, moving: Moving
    ) -> None:
        if moving is _ALONE:
            self._alone[job_id] = shape
        part = line.together if moving is _TOGETHER else line.firm
        fronts = self._together if moving is _TOGETHER else self._fronts
        before = _front(shape, part) if fronts is not None and part.positions else None
        line.put(job_id, position, moving)
        if fronts is not None:
            _moved(
                fronts, before, _front(shape, line.together if moving is _TOGETHER else line.firm)
            )

    def remove(self, shape: Shape, job_id: JobId) -> None:
        """It leaves, and with the last one its line."""
        fifo = part = self[shape]
        fronts = self._fronts
        if type(fifo) is Drifting:
            self._alone.pop(job_id, None)
            if job_id in fifo.together.positions:
                part, fronts = fifo.together, self._together
            else:
                part = fifo.firm
        before = _front(shape, part) if fronts is not None else None
        del fifo[job_id]
        if not fifo:
            del self[shape]
        if before is not None and fronts is not None:
            _moved(fronts, before, _front(shape, part) if part else None)

    def resort(self, stands: Stands) -> None:
        """Other services are learned: in lines by key each job may have another position."""
        if self._drift is not None:
            self._resort_alone(stands)
            return
        self._fronts = None
        for shape, fifo in self.items():
            self[shape] = Sorted({job_id: stands(job_id) for job_id in fifo})

    def _resort_alone(self, stands: Stands) -> None:
        lines: dict[Shape, dict[JobId, int]] = {}
        for job_id, shape in self._alone.items():
            lines.setdefault(shape, {})[job_id] = stands(job_id)
        for shape, positions in lines.items():
            line = self[shape]
            assert isinstance(line, Drifting)
            before = _front(shape, line.firm)
            line.firm.move(positions)
            if self._fronts is not None:
                _moved(self._fronts, before, _front(shape, line.firm))

    def place(self, placed: Placed) -> None:
        """Everybody has another position, in lines by key."""
        self._fronts = self._together = None
        for shape, fifo in self.items():
            if type(fifo) is not Drifting:
                self[shape] = Sorted({job_id: placed(job_id)[0] for job_id in fifo})
                continue
            line = self[shape] = fifo.emptied()
            for job_id in (*fifo.firm, *fifo.together):
                line.put(job_id, *placed(job_id))


def _front(shape: Shape, part: Mapping[JobId, int]) -> Front:
    """The first job of a line, or of a part of one."""
    if type(part) is Sorted:
        position, job_id = part.at(0)
        return position, job_id, shape
    job_id = next(iter(part))
    return part[job_id], job_id, shape


def _moved(fronts: SortedList[Front], before: Front | None, front: Front | None) -> None:
    """Another job is the first of its line."""
    if before is not None and before != front:
        fronts.remove(before)
    if front is not None and before != front:
        fronts.add(front)


def _first_of_each(fronts: Iterator[Front]) -> Iterator[Front]:
    """Each line once."""
    seen = set()
    for front in fronts:
        if front[2] not in seen:
            seen.add(front[2])
            yield front


class WaitingIndex:
    """Jobs of one priority and shape are interchangeable: only the first of each needs a look.

    `by_key`: positions are no order of arrival, so that a job may come anywhere into its line.
    `drift`: some jobs move together when other services are learned.
    """

    __slots__ = ("by_key", "by_priority", "count", "drift", "gpus", "priorities")

    def __init__(self, *, by_key: bool = False, drift: Drift | None = None) -> None:
        self.by_key, self.drift = by_key, drift
        self.priorities: list[int] = []  # sorted, those with waiting jobs
        self.by_priority: dict[int, WaitingLines] = {}
        self.count = 0
        self.gpus = 0

    def add(
        self, priority: int, shape: Shape, job_id: JobId, sequence: int, moving: Moving = _NOT
    ) -> None:
        lines = self.by_priority.get(priority)
        if lines is None:
            lines = self.by_priority[priority] = WaitingLines(by_key=self.by_key, drift=self.drift)
            insort(self.priorities, priority)
        lines.add(shape, job_id, sequence, moving)
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
            in_order = isinstance(line, OrderedDict)
            lines[shape] = OrderedDict(places) if in_order else Sorted(places)
        lines.remove(shape, job_id)
        if not lines:
            del self.by_priority[priority]
            del self.priorities[bisect_left(self.priorities, priority)]
        self.count -= 1
        self.gpus -= shape.gpus

    def resort(self, stands: Stands) -> None:
        """Other services are learned: in an index by key each job may have another position."""
        for lines in self.by_priority.values():
            lines.resort(stands)

    def place(self, placed: Placed) -> None:
        """Everybody has another position, in an index by key."""
        for lines in self.by_priority.values():
            lines.place(placed)


class WaitingByTeam(WaitingIndex):
    """Likewise, and the lines of each team or account: a quota does not read the queue."""

    __slots__ = ("_stands_in", "_team_of", "teams")

    def __init__(
        self, team_of: TeamOf, *, by_key: bool = False, drift: Drift | None = None
    ) -> None:
        super().__init__(by_key=by_key, drift=drift)
        self._team_of = team_of
        self._stands_in: dict[JobId, str] = {}  # a job with another team leaves the old line
        self.teams: dict[str, WaitingIndex] = {}

    def add(
        self, priority: int, shape: Shape, job_id: JobId, sequence: int, moving: Moving = _NOT
    ) -> None:
        super().add(priority, shape, job_id, sequence, moving)
        team = self._stands_in[job_id] = self._team_of(job_id)
        if team not in self.teams:
            self.teams[team] = WaitingIndex(by_key=self.by_key, drift=self.drift)
        self.teams[team].add(priority, shape, job_id, sequence, moving)

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

    def place(self, placed: Placed) -> None:
        once = cache(placed)
        super().place(once)
        for lines in self.teams.values():
            lines.place(once)


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
