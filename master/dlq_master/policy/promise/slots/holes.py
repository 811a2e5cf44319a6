"""One more job put into the free slots of a plan; no other job's slots change."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from dlq_master.model.jobs.band import Segment, Segments
from dlq_master.model.late import np
from dlq_master.policy.promise.capacity.fluid import Slots
from dlq_master.policy.promise.capacity.leases import NOISE, Grid, SloJob, needed, width
from dlq_master.policy.promise.slots.plan import completion_s


def insert(job: SloJob, by_s: float, free: Slots, grid: Grid) -> Segments | None:
    """Slots with enough free GPUs in which the job ends by `by_s`, in few segments; None: too few.

    `free`: the free GPUs slot by slot; later slots are not used. It takes the first hole that is
    long enough. Else it takes the longest holes first, which have most room for their number. A
    running job goes on if its GPUs are free. O(slots).
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
    """All free slots from the first one on until the job has ended; None: too few."""
    return _cut(job, _holes(width(job, grid), free, len(free)), grid)


def _stops(job: SloJob, hole: Segment) -> bool:
    """Whether a running job would stop if it had only this hole."""
    return not (job.running and hole.begin == 0)


def _holes(wide: int, free: Slots, horizon: int) -> list[Segment]:
    """The runs of slots with at least `wide` free GPUs."""
    fits = np.zeros(horizon + 2, dtype=np.int8)
    fits[1:-1] = free[:horizon] >= wide
    edges = (fits[1:] != fits[:-1]).nonzero()[0].tolist()
    return [*map(Segment, edges[::2], edges[1::2])]


def _cut(job: SloJob, holes: Sequence[Segment], grid: Grid) -> Segments | None:
    """The holes up to the job's end, without useless ones; None: it does not end."""
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
