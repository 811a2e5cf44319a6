"""One more job put into a plan without holes for it, by ejection chains.

The job takes slots of jobs that can use other slots. A displaced job goes into holes, or displaces
others in turn. A job that has displaced others is fixed, so that a chain ends. The rest of the plan
stays as it is.
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

# The most jobs that may make room in one chain, by the two ways of `eject`.
MOST_WHOLE, MOST_LACKING = 3, 40
_WIDEST = 1 << 32  # above any width


class Ejected(NamedTuple):
    """The plan with the new jobs in it, and the GPUs that it leaves free."""

    plan: SlotPlan
    free: Slots


def eject(
    plan: SlotPlan,
    jobs: Sequence[SloJob],
    missing: Sequence[int],
    ledger: PromiseLedger,
    grid: Grid,
) -> Ejected | None:
    """The plan with the jobs numbered `missing` at their promised steps; None: no chain is found.

    `ledger` has a row for each job, and the GPUs that the plan leaves free. The first way clears
    one stretch of slots whose jobs end soon or have other slots, which stops few jobs. The second
    way clears only as many slots as are lacking.
    """
    for whole, most in ((True, MOST_WHOLE), (False, MOST_LACKING)):
        found = _Chain(plan, jobs, ledger, grid, whole).placed(missing, most)
        if found is not None:
            return found
    return None


class _Room(NamedTuple):
    """Slots that a job may have if some segments of `givers` are lifted out, the easiest first."""

    segments: Segments
    givers: Mask
    ease: Slots


class _Chain:
    """A chain of ejections. `owner`, `begin` and `end` are the segments of the plan as columns.

    `there`: whether a segment is still in the plan. `fixed`: jobs that have displaced others.
    `widths`: the different widths of jobs, and `alike` the place of each job's width among them.
    """

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
        self.widths, self.alike = np.unique(ledger.wide, return_inverse=True)

    def placed(self, missing: Iterable[int], most: int) -> Ejected | None:
        """Place all jobs, the least patient first; None: more than `most` displacements, or no
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
        """The sort key of a job: little laxity first, then wide."""
        ledger = self.ledger
        return int(ledger.last[at] - ledger.needed[at]), -int(ledger.wide[at]), at

    def _by_s(self, at: int) -> float:
        return due_s(self.jobs[at], self.jobs[at].promised or 0, self.grid)

    def _room(self, at: int) -> _Room | None:
        """Slots to clear for a job.

        A segment is the easier to move the more other slots its job has: slots before its deadline
        with enough free GPUs.
        """
        ease = self._others()[self.owner]
        able = self.there & ~self.fixed[self.owner]
        if self.whole:
            length = np.minimum(self.end - self.begin, self.ledger.needed[at])
            easy = able & (ease >= length)
            for givers in (easy & (self.begin > 0), easy):
                wide = self.free + self.given(givers)
                made = insert(self.jobs[at], self._by_s(at), wide, self.grid)
                if made is not None:
                    return _Room(made, givers, ease)
            return None
        return self._lacking(at, able, ease)

    def _lacking(self, at: int, able: Mask, ease: Slots) -> _Room | None:
        """Free slots and as many more as the job lacks, from the jobs with most other slots."""
        wide, last = int(self.ledger.wide[at]), int(self.ledger.last[at])
        fits = self.free >= wide
        lack = max(1, int(self.ledger.needed[at]) - int(fits[:last].sum()))
        giving = _Giving(self, wide, able, ease, ~fits)
        top = int(ease[able].max(initial=0))
        for count in (lack, lack + 1, lack + 3):  # each segment more may cost a slot
            tried = None
            for least in (max(4 * count, top // 2), 2 * count, count, max(1, count // 4), 1, 0):
                givers, gives = giving.at_least(least)
                if gives is tried or not gives[:last].any():  # nothing more than was tried
                    continue
                tried = gives
                chosen = _runs(gives[:last], count)
                fits[:last] |= chosen
                made = insert(self.jobs[at], self._by_s(at), wide * fits, self.grid)
                if made is not None:
                    return _Room(made, givers, ease)
                fits[:last] &= ~chosen
        return None

    def given(self, givers: Mask) -> Slots:
        """The GPUs that become free in each slot without these segments."""
        wide = self.ledger.wide[self.owner[givers]]
        size = len(self.free) + 1
        change = np.bincount(self.begin[givers], wide, size)
        change -= np.bincount(self.end[givers], wide, size)
        given: Slots = np.cumsum(change)[:-1].astype(np.int64)
        return given

    def _others(self) -> Slots:
        """For each job: slots before its deadline with enough free GPUs that it does not hold."""
        upto: Slots = np.zeros((len(self.widths), len(self.free) + 1), dtype=np.int64)
        (self.free >= self.widths[:, None]).cumsum(axis=1, out=upto[:, 1:])
        own = self.there.nonzero()[0]
        owner = self.owner[own]
        alike = self.alike[owner]
        held = upto[alike, self.end[own]] - upto[alike, self.begin[own]]
        of = np.bincount(owner, held, len(self.jobs)).astype(np.int64)
        found: Slots = upto[self.alike, self.ledger.last] - of
        return found

    def _clear(self, at: int, room: _Room) -> list[int]:
        """Lift jobs out of the slots that a job needs; return their numbers.

        Of the segments in a slot the first choice covers the lack with the fewest GPUs. Ties go to
        the longest one, then to the easiest.
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


class _Giving:
    """The slots that a job lacks and others could give, by how easily these can be moved."""

    def __init__(self, chain: _Chain, wide: int, able: Mask, ease: Slots, lacks: Mask) -> None:
        self._chain, self._wide, self._able, self._ease = chain, wide, able, ease
        self._lacks = lacks
        self._known: dict[bytes, tuple[Mask, Mask]] = {}

    def at_least(self, least: int) -> tuple[Mask, Mask]:
        """The segments with `least` other slots (0: with any laxity), and the slots that they would
        free.

        Equal segments give the same object.
        """
        if least:
            givers = self._able & (self._ease >= least)
        else:
            ledger = self._chain.ledger
            givers = self._able & (ledger.last > ledger.needed)[self._chain.owner]
        known = self._known.get(key := givers.tobytes())
        if known is None:
            free = self._chain.free + self._chain.given(givers)
            known = self._known[key] = givers, self._lacks & (free >= self._wide)
        return known


def _runs(gives: Mask, count: int) -> Mask:
    """`count` of the slots in few runs: the first run that is long enough, else the
    longest runs.
    """
    padded = np.zeros(len(gives) + 2, dtype=np.int8)
    padded[1:-1] = gives
    begin, end = (padded[1:] != padded[:-1]).nonzero()[0].reshape(-1, 2).T
    length, chosen = end - begin, np.zeros(len(gives), dtype=bool)
    long = (length >= count).nonzero()[0]
    for run in (long[:1] if len(long) else np.argsort(-length, kind="stable")).tolist():
        take = min(count, int(length[run]))
        chosen[begin[run] : begin[run] + take] = True
        count -= take
        if not count:
            break
    return chosen
