"""Promises while nobody works them out: the kept plan is followed, and none is made or given up."""

from __future__ import annotations

from dlq_master.model.job import Job
from dlq_master.model.plan import NextSlot, Reserve
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.elsewhere import Elsewhere, Stage
from dlq_master.policy.promise.reading import kept_plan, lane_of, numbered
from dlq_master.policy.promise.rules import Decided, Promises

_KEPT = Reason(ReasonCode.SLOT_OVER, detail="by the kept plan; no new one was made in time")


def put_off(view: View, rules: Promises, slot: int | None) -> tuple[NextSlot | Reserve, ...]:
    """What is done about promises by who does not work them out; `slot`: the one that is due.

    Raises Elsewhere when somebody else is to be asked.
    """
    if slot is not None and rules.decided is Decided.KEPT:
        return tuple(kept_slot(view, rules, slot))
    if slot is not None:
        raise Elsewhere(Stage.SLOT)
    if view.cluster.unjudged and rules.decided is Decided.ELSEWHERE:
        raise Elsewhere(Stage.PROMISES)
    return ()


def kept_slot(view: View, rules: Promises, slot: int) -> list[NextSlot | Reserve]:
    """Who has this slot in the kept plan stands in it."""
    jobs = [view.cluster.jobs[job_id] for job_id in sorted(view.cluster.judged)]
    moved = [change for job in jobs if (change := _stands(job, slot, rules)) is not None]
    return [NextSlot(slot, _KEPT), *moved]


def _stands(job: Job, slot: int, rules: Promises) -> Reserve | None:
    """Where it stands in this slot; None: as it stood."""
    left = numbered(kept_plan([job], slot), job.job_id, slot)
    lane = lane_of(job, slot, rules)
    if lane is job.lane and left == job.slots:
        return None
    return Reserve(job.job_id, lane, left, job.promised, job.verdict, _KEPT)
