"""A plan with every job as late as its promise allows: until then the order of best effort decides.

What a promise needs is that its slots are there, not that they are used: a job that runs in best effort before does so
where it disturbs nobody who would end sooner, and its slots become fewer. Nobody's slots move but to later ones that
are free, so a plan without faults stays one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dlq_master.model.lane import Segment, Segments
from dlq_master.policy.promise.fluid import Slots
from dlq_master.policy.promise.leases import NOISE, Grid, SloJob, due_s, needed, width
from dlq_master.policy.promise.plan import Plan, completion_s, free_gpus, slots_of, step_made

# Slots that are left before the deadline: GPUs may be short of a whole node, or a save take longer, once.
CUSHION = 1


def as_late_as_can_be(plan: Plan, jobs: Sequence[SloJob], grid: Grid) -> Plan:
    """The same steps made, every job in one piece where that is possible, the latest deadline first. O(jobs x slots)."""
    steps = {}
    for job in jobs:
        step = step_made(job, plan.segments.get(job.key, ()), grid)
        if step is not None:
            steps[job.key] = step
    moved = [job for job in jobs if job.key in steps]
    if not moved:
        return plan
    latest_s = max(due_s(job, steps[job.key], grid) for job in moved)
    slots = max(slots_of(plan), int(latest_s // grid.term_s) + 1)
    free = free_gpus(plan, jobs, grid, slots)
    moved.sort(key=lambda job: (-due_s(job, steps[job.key], grid), job.key))
    later = dict(plan.segments)
    for job in moved:
        held, wide = plan.segments[job.key], width(job, grid)
        for begin, end in held:
            free[begin:end] += wide
        by_s = due_s(job, steps[job.key], grid)
        found = _latest(job, by_s, free, grid, held[0].begin) or held
        for begin, end in found:
            free[begin:end] -= wide
        later[job.key] = found
    return Plan(later)


def _latest(job: SloJob, by_s: float, free: Slots, grid: Grid, first: int) -> Segments | None:
    """The last slots in one piece in which it completes in time, if they begin later than `first`."""
    count = needed(job.work_s + job.resume_s, grid.term_s)
    rest_s = job.work_s + job.resume_s - (count - 1) * grid.term_s
    last = int((by_s - rest_s) / grid.term_s + NOISE) + 1 - CUSHION  # its last slot ends
    last = min(last, len(free))
    if last - count <= first:
        return None
    short = np.flatnonzero(free[:last] < width(job, grid))
    end = last
    for slot in short[::-1]:
        if slot < end - count:
            break
        end = min(end, int(slot))
        if end - count <= first:
            return None
    begin = end - count
    made = (Segment(begin, end),)
    return made if begin > first and completion_s(job, made, grid) <= by_s else None
