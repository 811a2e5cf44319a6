"""A plan with every job as late as its promise allows: until then the order of best effort decides.

A promise needs its slots to be there, not to be used. A job that runs in best effort before does so
where it disturbs no job that would end sooner, and its slots become fewer. Nobody's slots move but
to later ones that are free, so a plan without faults stays one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlq_master.model.jobs.band import Segment, Segments
from dlq_master.model.late import np
from dlq_master.policy.promise.capacity.fluid import Slots
from dlq_master.policy.promise.capacity.leases import NOISE, Grid, SloJob, due_s, needed, width
from dlq_master.policy.promise.slots.plan import (
    SlotPlan,
    completion_s,
    free_gpus,
    hold,
    slots_of,
    steps_made,
)

# Slots that are left before the deadline: GPUs may be short of a whole node, or a save take longer,
# once.
CUSHION = 1


def as_late_as_can_be(
    plan: SlotPlan, jobs: Sequence[SloJob], grid: Grid, steps: Mapping[str, int] | None = None
) -> SlotPlan:
    """The same steps made, every job in one piece where that is possible, the latest deadline
    first. `steps`: these by key, if they are known already. O(jobs x slots)."""
    held = plan.segments
    steps = steps_made(plan, jobs, grid) if steps is None else steps
    due = {job.key: due_s(job, steps[job.key], grid) for job in jobs if job.key in steps}
    moved = [job for job in jobs if job.key in due]
    moved = [job for job in moved if _begins(job, due[job.key], grid) > held[job.key][0].begin]
    if not moved:
        return plan
    slots = max(slots_of(plan), int(max(due.values()) // grid.term_s) + 1)
    free = free_gpus(plan, jobs, grid, slots)
    moved.sort(key=lambda job: (-due[job.key], job.key))
    later = dict(held)
    for job in moved:
        was, wide = held[job.key], width(job, grid)
        hold(free, was, -wide)
        found = _latest(job, due[job.key], free, grid, was[0].begin) or was
        hold(free, found, wide)
        later[job.key] = found
    return SlotPlan(later)


def _begins(job: SloJob, by_s: float, grid: Grid) -> int:
    """The last slot in which it may begin and complete in time in one piece, if all GPUs were
    free.
    """
    count = needed(job.work_s + job.resume_s, grid.term_s)
    rest_s = job.work_s + job.resume_s - (count - 1) * grid.term_s
    last = int((by_s - rest_s) / grid.term_s + NOISE) + 1 - CUSHION  # its last slot ends
    return last - count


def _latest(job: SloJob, by_s: float, free: Slots, grid: Grid, first: int) -> Segments | None:
    """The last slots in one piece in which it completes in time, if they begin later than
    `first`.
    """
    count = needed(job.work_s + job.resume_s, grid.term_s)
    last = min(_begins(job, by_s, grid) + count, len(free))
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
