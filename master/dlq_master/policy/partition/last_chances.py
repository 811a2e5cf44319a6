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
from dlq_master.policy.promise.capacity.grids import kept_grid, slot_s
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

# The grounds of refusal that leave a last chance. Not among them is QUOTA: a team with promises for
# all GPUs of its quota gets no more.
_GROUNDS = frozenset(
    {
        VerdictGround.WORTH.value,
        VerdictGround.FLUID.value,
        VerdictGround.PLAN.value,
        VerdictGround.REACH.value,
        VerdictGround.WIDTH.value,  # it may fit with the floor of best effort
        VerdictGround.LIMIT.value,
        VerdictGround.BROKEN.value,
    }
)


class Chance(NamedTuple):
    """A job at its last chance, and its reward for a GPU and its time."""

    job_id: JobId
    own: SloJob
    step: int
    density: float


def near_last_chance(view: View, slot: int, rules: Promises) -> Iterator[JobId]:
    """Jobs that may have their last chance at `slot`. A quick test: some have more time."""
    cluster, term_s = view.cluster, slot_s(view.cluster)
    begin_s, until_s = slot * term_s, (slot + CUSHION + 1) * term_s
    for job_id in cluster.judged:
        if may_be_late(view, cluster.jobs[job_id], begin_s, until_s, rules):
            yield job_id


def may_be_late(view: View, job: Job, begin_s: float, until_s: float, rules: Promises) -> bool:
    """Whether a job without a promise may be in time from `begin_s` on, and late from `until_s` on.
    A quick test.
    """
    if not _is_refused(job):
        return False
    first_s, last_s = job.steps[0].deadline_s, job.steps[-1].deadline_s
    if job.submit_time_s + last_s <= begin_s:
        return False
    return job.submit_time_s + first_s - until_s < _most_s(view, job, rules)


def _is_refused(job: Job) -> bool:
    """Whether the job was refused a promise on grounds that leave it a last chance."""
    refused = job.promised is None and job.verdict in _GROUNDS
    return refused and job.keeps_work and job.band is not Band.LIMIT


def _most_s(view: View, job: Job, rules: Promises) -> float:
    """An upper bound of its remaining time, pauses included."""
    cluster = view.cluster
    work_s = total_s(job, margin(cluster, rules, job)) / pace(cluster, job)
    return work_s + 2 * sum(pause_of(cluster, job))


def last_chances(
    view: View,
    gpu_type: str,
    jobs: Sequence[Job],
    slot: int,
    rules: Promises,
    plan: SlotPlan,
    asked: Sequence[SloJob],
) -> SlotPlan:
    """Plan slots for the refused jobs among `jobs` that have to begin in `slot` to be in time.

    They get GPUs that `plan`, the plan of the jobs `asked`, leaves free. The job with the most
    reward for a GPU and slot chooses first. Promised jobs get nothing here. The floor of best
    effort may be used too: promises bind GPUs for long, but a last chance lasts one run.
    """
    refused = [job for job in jobs if _is_refused(job)]
    if not refused:
        return SlotPlan()
    grid = kept_grid(view.cluster, gpu_type, slot, rules)
    found = [one for job in refused if (one := _chance(view, job, slot, rules, grid)) is not None]
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
    """The last chance of a refused job, if it has to begin in `slot`; None: it has more time, or
    none.
    """
    own = slo_job(view.cluster, job, slot, margin(view.cluster, rules, job))
    step = first_within(own, grid)
    if step is None:
        return None
    count, last = leases(own, step, grid)
    goes_on = own.running and job.band is Band.SLO  # a stop would only cost it time
    if last - count > CUSHION and not goes_on:
        return None
    return Chance(job.job_id, own, step, own.steps[step].reward / (width(own, grid) * count))
