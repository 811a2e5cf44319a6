"""Promises after a loss: a node is gone, or a job takes longer than was reserved.

As many promises as possible are kept, with few changes of the plan. Each promise that is given up
is reported. First those go that the job could not meet even alone. Then, until the others fit in
fractions, those with the least reward for a GPU and slot. Last come those for which no slots are
found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dlq_master.policy.promise.capacity.fluid import SlotDemand
from dlq_master.policy.promise.capacity.leases import Grid, SloJob, width, within
from dlq_master.policy.promise.slots.augment import augment
from dlq_master.policy.promise.slots.eject import eject
from dlq_master.policy.promise.slots.ledger import PromiseLedger, row
from dlq_master.policy.promise.slots.plan import (
    SlotPlan,
    faults,
    free_gpus,
    hold,
    keeps_promise,
    ordered,
    slots_of,
)
from dlq_master.policy.promise.slots.realise import FIRM, serve_all


class Mended(NamedTuple):
    """A plan that keeps every promise but those of the `broken` jobs, which hold no slots."""

    plan: SlotPlan
    broken: tuple[str, ...]


def mended(plan: SlotPlan, jobs: Sequence[SloJob], grid: Grid) -> Mended:
    """A plan that keeps the promises among `jobs`, repaired where `plan` has faults.

    If it has faults, slots of jobs without a promise are dropped. Slots of unknown keys always are.
    """
    held = [job for job in jobs if job.promised is not None]
    known = {job.key for job in jobs}
    plan = plan.without([key for key in plan.segments if key not in known])
    if not faults(plan, jobs, grid):
        return Mended(plan, ())
    kept = keepable(held, grid)
    place = _mended_plan(plan, kept, grid)
    there = place.segments
    return Mended(place, tuple([job.key for job in held if job.key not in there]))


def keepable(jobs: Sequence[SloJob], grid: Grid) -> list[SloJob]:
    """The guaranteed jobs without those for which there is no capacity.

    Jobs with the least reward for a GPU and slot are left out, no more of them than necessary.
    """
    held = [job for job in jobs if job.promised is not None and job.promised in within(job, grid)]
    if fit([(job, job.promised or 0) for job in held], grid):
        return held
    order = sorted(held, key=lambda job: (density(job, grid), job.key))
    low, high = 1, len(order)  # fewest to let go: fewer jobs ask for less of every prefix
    while low < high:
        middle = (low + high) // 2
        rest = [(job, job.promised or 0) for job in order[middle:]]
        low, high = (low, middle) if fit(rest, grid) else (middle + 1, high)
    gone = {job.key for job in order[:low]} - _that_fit_after_all(order[:low], order[low:], grid)
    return [job for job in held if job.key not in gone]


def _that_fit_after_all(out: Sequence[SloJob], left: Sequence[SloJob], grid: Grid) -> set[str]:
    """The keys of left-out jobs that fit beside the others, the most rewarding first."""
    rows = {job.key: row(job, job.promised or 0, grid) for job in (*out, *left)}
    demand = SlotDemand(grid, max(last for *_, last in rows.values()))
    demand.add_all(rows[job.key] for job in left)
    found = set()
    for job in reversed(out):
        if demand.fits(*rows[job.key]):
            demand.add(*rows[job.key])
            found.add(job.key)
    return found


def fit(wishes: Sequence[tuple[SloJob, int]], grid: Grid) -> bool:
    """Whether jobs fit with one step each: every prefix within its capacity."""
    rows = [row(job, step, grid) for job, step in wishes]
    demand = SlotDemand(grid, max((last for *_, last in rows), default=0))
    return demand.fit_all(rows)


def density(job: SloJob, grid: Grid) -> float:
    """The reward of the promised step for a GPU and slot."""
    wide, needed, _ = row(job, job.promised or 0, grid)
    return job.steps[job.promised or 0].reward / (wide * needed)


def _mended_plan(plan: SlotPlan, jobs: Sequence[SloJob], grid: Grid) -> SlotPlan:
    """A plan for these jobs, or for as many of them as get slots."""
    part = _intact_part(plan, jobs, grid)
    missing = [number for number, job in enumerate(jobs) if job.key not in part.segments]
    ledger = PromiseLedger(jobs, part, grid, slots_of(part))
    if (found := eject(part, jobs, missing, ledger, grid)) is not None:
        return found.plan
    picks = {job.key: job.promised or 0 for job in jobs}
    if (new := serve_all(jobs, picks, grid, FIRM)) is not None:
        return new
    for number in sorted(missing, key=lambda at: (-density(jobs[at], grid), jobs[at].key)):
        found = eject(part, jobs, [number], ledger, grid)
        found = found or augment(part, jobs, number, ledger, grid)
        if found is not None:
            part, ledger.free = found.plan, found.free
    return part


def _intact_part(plan: SlotPlan, jobs: Sequence[SloJob], grid: Grid) -> SlotPlan:
    """The part of the plan that keeps promises within the capacity.

    In a slot that is too full, jobs with the least reward for a GPU and slot are taken out.
    """
    good = {}
    for job in jobs:
        made = plan.segments.get(job.key, ())
        if made and ordered(made) and keeps_promise(job, made, grid):
            good[job.key] = made
    free = free_gpus(SlotPlan(good), jobs, grid, slots_of(plan))
    for job in sorted(jobs, key=lambda job: (density(job, grid), job.key)):
        made = good.get(job.key, ())
        if any(free[begin:end].min() < 0 for begin, end in made):
            del good[job.key]
            hold(free, made, -width(job, grid))
    return SlotPlan(good)
