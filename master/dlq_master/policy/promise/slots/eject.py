"""A job put into a plan that has no holes for it: others make room and find other slots (ejection
chains).

The job takes slots that others can do without. A displaced job goes into the holes, or displaces
others in turn. A job that has made room for itself stays in place, so that a chain ends. All else
of the plan stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dlq_master.model.jobs.band import Segments
from dlq_master.model.late import np
from dlq_master.policy.promise.capacity.fluid import Slots
from dlq_master.policy.promise.capacity.leases import Grid, SloJob, due_s
from dlq_master.policy.promise.slots.holes import insert
from dlq_master.policy.promise.slots.ledger import PromiseLedger
from dlq_master.policy.promise.slots.plan import SlotPlan, hold

if TYPE_CHECKING:
    from numpy.typing import NDArray

Mask: TypeAlias = "NDArray[np.bool_]"

# Jobs that may make room in one chain: where whole stretches are cleared, and where only what is
# lacking.
MOST_WHOLE, MOST_LACKING = 3, 40
_WIDEST = 1 << 32  # above any width


class Ejected(NamedTuple):
    """The plan with everybody in it, and what it leaves free."""

    plan: SlotPlan
    free: Slots


def eject(
    plan: SlotPlan,
    jobs: Sequence[SloJob],
    missing: Sequence[int],
    ledger: PromiseLedger,
    grid: Grid,
) -> Ejected | None:
    """The plan with the jobs numbered `missing` in it too, all by their promised steps; None if no
    chain is found. `ledger` has a row for each job, and what the plan leaves free. First for one
    stretch of slots in which others end soon or have other slots, which stops few. Else for as few
    slots as are lacking.
    """
    for whole, most in ((True, MOST_WHOLE), (False, MOST_LACKING)):
        found = _Chain(plan, jobs, ledger, grid, whole).placed(missing, most)
        if found is not None:
            return found
    return None


class _Room(NamedTuple):
    """Slots that a job may have if some of the segments in `givers`, the easiest first, are lifted
    out.
    """

    segments: Segments
    givers: Mask
    ease: Slots


class _Chain:
    """`owner`, `begin`, `end` are the segments of the plan, `there` whether they still are; `fixed`
    are the jobs that have made room for themselves."""

    def __init__(
        self, plan: SlotPlan, jobs: Sequence[SloJob], ledger: PromiseLedger, grid: Grid, whole: bool
    ) -> None:
        self.plan, self.jobs, self.ledger, self.grid, self.whole = plan, jobs, ledger, grid, whole
        self.free = ledger.free.copy()
        self.held = {
            number: made for number, job in enumerate(jobs) if (made := plan.segments.get(job.key))
        }
        self.fixed = np.zeros(len(jobs), dtype=bool)
        table = [(number, *segment) for number, made in self.held.items() for segment in made]
        rows: Slots = np.array(table, dtype=np.int64).reshape(-1, 3)
        self.owner, self.begin, self.end = rows.T
        self.there = np.ones(len(rows), dtype=bool)

    def placed(self, missing: Iterable[int], most: int) -> Ejected | None:
        """All jobs in slots, the ones that can wait least first, after at most so many have made
        room.
        """
        out, moves, changed = list(missing), 0, {}
        while out:
            at = min(out, key=self._urgency)
            out.remove(at)
            made = insert(self.jobs[at], self._by_s(at), self.free, self.grid)
            if made is None:
                moves += 1
                room = self._room(at) if moves <= most else None
                if room is None:
                    return None
                made = room.segments
                out += self._clear(at, room)
                self.fixed[at] = True
            self._put(at, made)
            changed[self.jobs[at].key] = made
        return Ejected(SlotPlan({**self.plan.segments, **changed}), self.free)

    def _urgency(self, at: int) -> tuple[int, int, int]:
        ledger = self.ledger
        return int(ledger.last[at] - ledger.needed[at]), -int(ledger.wide[at]), at

    def _by_s(self, at: int) -> float:
        return due_s(self.jobs[at], self.jobs[at].promised or 0, self.grid)

    def _room(self, at: int) -> _Room | None:
        """Slots to be cleared for a job. A segment is the easier to move the more slots its job
        could have instead: those before its deadline with so many GPUs free."""
        ease = self._others()[self.owner]
        able = self.there & ~self.fixed[self.owner]
        if self.whole:
            length = np.minimum(self.end - self.begin, self.ledger.needed[at])
            easy = able & (ease >= length)
            for givers in (easy & (self.begin > 0), easy):
                wide = self.free + self._given(givers)
                made = insert(self.jobs[at], self._by_s(at), wide, self.grid)
                if made is not None:
                    return _Room(made, givers, ease)
            return None
        return self._lacking(at, able, ease)

    def _lacking(self, at: int, able: Mask, ease: Slots) -> _Room | None:
        """The slots that are free, and as few more as it lacks: where others have most to choose
        from.
        """
        wide, last = int(self.ledger.wide[at]), int(self.ledger.last[at])
        fits = self.free >= wide
        lack = max(1, int(self.ledger.needed[at]) - int(fits[:last].sum()))
        top = int(ease[able].max(initial=0))
        loose = (self.ledger.last > self.ledger.needed)[self.owner]
        for count in (lack, lack + 1, lack + 3):  # each segment more may cost a slot
            for least in (max(4 * count, top // 2), 2 * count, count, max(1, count // 4), 1, 0):
                givers = able & (ease >= least) if least else able & loose
                gives = ~fits & (self.free + self._given(givers) >= wide)
                chosen = _runs(gives[:last], count)
                fits[:last] |= chosen
                made = insert(self.jobs[at], self._by_s(at), wide * fits, self.grid)
                if made is not None:
                    return _Room(made, givers, ease)
                fits[:last] &= ~chosen
        return None

    def _given(self, givers: Mask) -> Slots:
        """GPUs that come free in each slot if these segments go."""
        wide = self.ledger.wide[self.owner[givers]]
        size = len(self.free) + 1
        change = np.bincount(self.begin[givers], wide, size)
        change -= np.bincount(self.end[givers], wide, size)
        given: Slots = np.cumsum(change)[:-1].astype(np.int64)
        return given

    def _others(self) -> Slots:
        """Slots before each job's deadline with as many GPUs free as it wants, and not its own."""
        count = np.zeros(len(self.jobs), dtype=np.int64)
        wide_of = self.ledger.wide[self.owner]
        for wide in np.unique(self.ledger.wide).tolist():
            upto = np.concatenate([[0], np.cumsum(self.free >= wide)])
            alike = self.ledger.wide == wide
            count[alike] = upto[self.ledger.last[alike]]
            own = np.flatnonzero(self.there & (wide_of == wide))
            np.subtract.at(count, self.owner[own], upto[self.end[own]] - upto[self.begin[own]])
        return count

    def _clear(self, at: int, room: _Room) -> list[int]:
        """Lift out a job from the slots that the new job needs: the one that covers the lack, the
        longest, the easiest.
        """
        wide, out = int(self.ledger.wide[at]), []
        for begin, end in room.segments:
            while len(short := np.flatnonzero(self.free[begin:end] < wide)):
                begin += int(short[0])
                lack = wide - int(self.free[begin])
                covered = self.there & (self.begin <= begin) & (self.end > begin)
                rows = np.flatnonzero(room.givers & covered)
                gpus = self.ledger.wide[self.owner[rows]]
                fewest = np.where(gpus >= lack, gpus, _WIDEST - gpus)
                covers = np.minimum(self.end[rows], end)
                first = np.lexsort((rows, -room.ease[rows], -covers, fewest))[0]
                out.append(int(self.owner[rows[first]]))
                self._lift(out[-1])
        return out

    def _lift(self, at: int) -> None:
        hold(self.free, self.held.pop(at), -self.ledger.wide[at])
        self.there &= self.owner != at

    def _put(self, at: int, made: Segments) -> None:
        self.held[at] = made
        hold(self.free, made, self.ledger.wide[at])
        rows = np.array(made, dtype=np.int64)
        self.owner = np.append(self.owner, np.full(len(made), at))
        self.begin = np.append(self.begin, rows[:, 0])
        self.end = np.append(self.end, rows[:, 1])
        self.there = np.append(self.there, np.ones(len(made), dtype=bool))


def _runs(gives: Mask, count: int) -> Mask:
    """`count` of the slots (or all, if there are fewer) in few runs: the first that is long enough,
    else the longest first."""
    padded = np.zeros(len(gives) + 2, dtype=np.int8)
    padded[1:-1] = gives
    begin, end = np.flatnonzero(np.diff(padded)).reshape(-1, 2).T
    length, chosen = end - begin, np.zeros(len(gives), dtype=bool)
    long = np.flatnonzero(length >= count)
    for run in (long[:1] if len(long) else np.argsort(-length, kind="stable")).tolist():
        take = min(count, int(length[run]))
        chosen[begin[run] : begin[run] + take] = True
        count -= take
        if not count:
            break
    return chosen
