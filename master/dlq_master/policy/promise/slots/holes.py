"""A job put into what a plan leaves free: nobody else's slots change."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from dlq_master.model.jobs.band import Segment, Segments
from dlq_master.model.late import np
from dlq_master.policy.promise.capacity.fluid import Slots
from dlq_master.policy.promise.capacity.leases import NOISE, Grid, SloJob, needed, width
from dlq_master.policy.promise.slots.plan import completion_s


def insert(job: SloJob, by_s: float, free: Slots, grid: Grid) -> Segments | None:
    """Slots in which it completes by `by_s`, in few segments; None if the holes do not suffice.

    `free` are the free GPUs, slot by slot; later slots are not looked at. The first hole that is
    long enough, else the longest holes first: of all sets of as many holes these have room for
    most. A job that runs goes on if its GPUs are free. O(slots).
    """
    term_s = grid.term_s
    horizon = min(len(free), max(0, ceil(by_s / term_s - NOISE)))
    holes = _holes(width(job, grid), free, horizon)
    least = needed(job.work_s, term_s)
    if sum([end - begin for begin, end in holes]) < least - 1:  # without charges, with noise
        return None
    for hole in holes:
        if hole.end - hole.begin < least:
            continue
        whole = _cut(job, [hole], grid)
        if whole and completion_s(job, whole, grid) <= by_s + NOISE * term_s:
            return whole
    chosen: list[Segment] = []
    for hole in sorted(holes, key=lambda hole: (_stops(job, hole), hole.begin - hole.end, hole)):
        chosen.append(hole)
        cut = _cut(job, sorted(chosen), grid)
        if cut and completion_s(job, cut, grid) <= by_s + NOISE * term_s:
            return cut
    return None


def earliest(job: SloJob, free: Slots, grid: Grid) -> Segments | None:
    """All the slots it can get, from the first on, until it has completed: the holes' earliest
    end.
    """
    return _cut(job, _holes(width(job, grid), free, len(free)), grid)


def _stops(job: SloJob, hole: Segment) -> bool:
    """Whether a job that runs would stop for this hole if it had no other."""
    return not (job.running and hole.begin == 0)


def _holes(wide: int, free: Slots, horizon: int) -> list[Segment]:
    fits = np.zeros(horizon + 2, dtype=np.int8)
    fits[1:-1] = free[:horizon] >= wide
    edges = (fits[1:] != fits[:-1]).nonzero()[0].tolist()
    return [*map(Segment, edges[::2], edges[1::2])]


def _cut(job: SloJob, holes: Sequence[Segment], grid: Grid) -> Segments | None:
    """The holes up to its completion; None if it does not complete. Useless holes are left out."""
    rest_s, made = job.work_s, []
    for begin, end in holes:
        charge_s = 0.0 if job.running and begin == 0 else job.resume_s
        if (end - begin) * grid.term_s <= charge_s:
            continue
        slots = needed(rest_s + charge_s, grid.term_s)
        made.append(Segment(begin, min(end, begin + slots)))
        if begin + slots <= end:
            return tuple(made)
        rest_s -= (end - begin) * grid.term_s - charge_s
    return None
