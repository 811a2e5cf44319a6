"""Promises while nobody works them out: the kept plan is followed, and none is made or given up."""

from __future__ import annotations

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.jobs.job import Job
from dlq_master.model.plan import NextSlot, Reserve
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.elsewhere import Elsewhere, Stage
from dlq_master.policy.promise.capacity.grids import grid_of, type_of
from dlq_master.policy.promise.capacity.rules import DeadlinesDecided, Promises
from dlq_master.policy.promise.verdicts.reading import band_of, kept_plan, numbered

_KEPT = Reason(ReasonCode.SLOT_OVER, detail="by the kept plan; no new one was made in time")


def put_off(view: View, rules: Promises, slot: int | None) -> tuple[NextSlot | Reserve, ...]:
    """The work on promises of a caller that does not work them out; `slot`: the one that is due.

    Raises Elsewhere when somebody else is to be asked.
    """
    if slot is not None and rules.decided is DeadlinesDecided.KEPT:
        return tuple(kept_slot(view, rules, slot))
    if slot is not None:
        raise Elsewhere(Stage.SLOT)
    if view.cluster.to_judge() and rules.decided is DeadlinesDecided.ELSEWHERE:
        raise Elsewhere(Stage.PROMISES)
    return ()


def kept_slot(view: View, rules: Promises, slot: int) -> list[NextSlot | Reserve]:
    """A job with this slot in the kept plan stands in it."""
    jobs = [view.cluster.jobs[job_id] for job_id in sorted(view.cluster.judged)]
    jobs.sort(key=lambda job: job.promised is None)
    room: dict[str, int] = {}
    moved = []
    for job in jobs:
        if job.planned(slot) and not _enters(view.cluster, job, slot, rules, room):
            job = job._replace(slots=())
        change = _stands(job, view.cluster.jobs[job.job_id], slot, rules)
        if change is not None:
            moved.append(change)
    return [NextSlot(slot, _KEPT), *moved]


def _enters(cluster: Cluster, job: Job, slot: int, rules: Promises, room: dict[str, int]) -> bool:
    """Whether the slot has room for it beside those before it; a job with the promise always
    enters.
    """
    gpu_type = type_of(cluster, job)
    grid = grid_of(cluster, gpu_type, rules, slot)
    wide = grid.wide(job.request.gpus)
    left = room.get(gpu_type, grid.at(0)) - wide
    if job.promised is None and left < 0:
        return False
    room[gpu_type] = left
    return True


def _stands(job: Job, before: Job, slot: int, rules: Promises) -> Reserve | None:
    """Where it stands in this slot; None: as it stood before."""
    left = numbered(kept_plan([job], slot), job.job_id, slot)
    band = band_of(job, slot, rules)
    if band is before.band and left == before.slots:
        return None
    return Reserve(job.job_id, band, left, job.promised, job.verdict, _KEPT)
