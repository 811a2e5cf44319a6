"""A plan with every job as late as its promise allows; until then it is in the line of best effort.

A promise needs its slots to exist, not to be used. A job that runs earlier in best effort displaces
no job that would end sooner, and needs fewer slots later. Slots only move to later free ones, so a
plan without faults stays one.
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

# Slots kept free before the deadline, in case a node is lost or a save takes longer, once.
CUSHION = 1


def as_late_as_can_be(
    plan: SlotPlan, jobs: Sequence[SloJob], grid: Grid, steps: Mapping[str, int] | None = None
) -> SlotPlan:
    """The plan with the same steps met as late as possible, each job in one segment if possible.

    The job with the latest deadline moves first. `steps`: the steps met, by key, if known. O(jobs x
    slots).
    """
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
    """The last slot in which it may begin and be in time in one segment, if all GPUs were free."""
    count = needed(job.work_s + job.resume_s, grid.term_s)
    rest_s = job.work_s + job.resume_s - (count - 1) * grid.term_s
    last = int((by_s - rest_s) / grid.term_s + NOISE) + 1 - CUSHION  # the end of its last slot
    return last - count


def _latest(job: SloJob, by_s: float, free: Slots, grid: Grid, first: int) -> Segments | None:
    """The latest segment in which it is in time, if that begins after `first`."""
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
