"""The last chances of jobs without a promise: slots that the promises leave free.

A promise binds GPUs for good. So a job is refused one if others may bid more for the GPUs
(`promise.solver.price`). Others found no room when they were judged. But jobs end early, and waves
of requests ebb. A refused job can often be in time all the same.

It gets slots when it would be late in any later ones. Until then it stands in line, and GPUs go to
jobs that end sooner. Nothing is promised, and a later promise comes first. So the choice is made
anew for each slot, behind the plan of the promises.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job
from dlq_master.model.view import View
from dlq_master.policy.promise.capacity.fluid import Slots
from dlq_master.policy.promise.capacity.grids import slot_s
from dlq_master.policy.promise.capacity.leases import (
    Grid,
    SloJob,
    due_s,
    first_within,
    leases,
    width,
)
from dlq_master.policy.promise.capacity.rules import Promises, VerdictGround
from dlq_master.policy.promise.slots.holes import insert
from dlq_master.policy.promise.slots.late import CUSHION
from dlq_master.policy.promise.slots.plan import SlotPlan, free_gpus, hold, slots_of
from dlq_master.policy.promise.verdicts.reading import margin, pace, pause_of, slo_job, total_s

# Not among them: a team with promises for all GPUs of its quota gets no more.
_GROUNDS = frozenset(
    {
        VerdictGround.WORTH.value,
        VerdictGround.FLUID.value,
        VerdictGround.PLAN.value,
        VerdictGround.REACH.value,
        VerdictGround.WIDTH.value,  # of the floor of best effort it may be
        VerdictGround.LIMIT.value,
        VerdictGround.BROKEN.value,
    }
)


class Chance(NamedTuple):
    """A job at its last chance, and what it earns there for a GPU and its time."""

    job_id: JobId
    own: SloJob
    step: int
    density: float


def near_last_chance(view: View, slot: int, rules: Promises) -> Iterator[JobId]:
    """Jobs without a promise that may have theirs at `slot`. A quick look: some have more time."""
    cluster, term_s = view.cluster, slot_s(view.cluster)
    begin_s, until_s = slot * term_s, (slot + CUSHION + 1) * term_s
    for job_id in cluster.judged:
        if may_be_late(view, cluster.jobs[job_id], begin_s, until_s, rules):
            yield job_id


def may_be_late(view: View, job: Job, begin_s: float, until_s: float, rules: Promises) -> bool:
    """Whether a job without a promise is perhaps in time from `begin_s` on, and late from `until_s`
    on. A quick look.
    """
    if not _may_have_one(job):
        return False
    first_s, last_s = job.steps[0].deadline_s, job.steps[-1].deadline_s
    if job.submit_time_s + last_s <= begin_s:
        return False
    return job.submit_time_s + first_s - until_s < _most_s(view, job, rules)


def _may_have_one(job: Job) -> bool:
    refused = job.promised is None and job.verdict in _GROUNDS
    return refused and job.keeps_work and job.band is not Band.LIMIT


def _most_s(view: View, job: Job, rules: Promises) -> float:
    """No more than this is left of it, its pauses included."""
    cluster = view.cluster
    work_s = total_s(job, margin(cluster, rules, job)) / pace(cluster, job)
    return work_s + 2 * sum(pause_of(cluster, job))


def last_chances(
    view: View,
    jobs: Sequence[Job],
    slot: int,
    rules: Promises,
    grid: Grid,
    plan: SlotPlan,
    asked: Sequence[SloJob],
) -> SlotPlan:
    """Slots for jobs that have to begin now, out of the rest of the `plan` of the jobs `asked`.

    The most reward for a GPU and slot comes first. A promised job gets none here. `grid` has the
    floor of best effort too: promises bind GPUs for long, and a last chance is short of nothing
    else.
    """
    found = [one for job in jobs if (one := _chance(view, job, slot, rules, grid)) is not None]
    if not found:
        return SlotPlan()
    horizon = max(leases(one.own, one.step, grid)[1] for one in found)
    horizon = max(horizon, slots_of(plan), len(grid.capacity))
    plans = entering(found, free_gpus(plan, asked, grid, horizon), grid)
    return SlotPlan({key: held for made in plans.values() for key, held in made.segments.items()})


def entering(chances: Sequence[Chance], free: Slots, grid: Grid) -> dict[JobId, SlotPlan]:
    """The plan of each job that can begin at once, the most reward for a GPU and its time first.
    They take their GPUs from `free`.
    """
    found = {}
    for job_id, own, step, _ in sorted(chances, key=lambda one: (-one.density, one.job_id)):
        held = insert(own, due_s(own, step, grid), free, grid)
        if held is not None and held[0].begin == 0:
            hold(free, held, width(own, grid))
            found[job_id] = SlotPlan({own.key: held})
    return found


def _chance(view: View, job: Job, slot: int, rules: Promises, grid: Grid) -> Chance | None:
    if not _may_have_one(job):
        return None
    own = slo_job(view.cluster, job, slot, margin(view.cluster, rules, job))
    step = first_within(own, grid)
    if step is None:
        return None
    count, last = leases(own, step, grid)
    goes_on = own.running and job.band is Band.SLO  # a stop would only cost it time
    if last - count > CUSHION and not goes_on:
        return None
    return Chance(job.job_id, own, step, own.steps[step].reward / (width(own, grid) * count))
