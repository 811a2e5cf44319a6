"""A plan that was made for an instant that is over: what of it still may be done?

Each change is checked on its own, in order, beside those before it. One that is not legal any more,
or whose cause is gone, is dropped with the reason, and the others stand. The rest is a plan that
`check_delta` accepts, from any source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.plan import Change, Lapse, NextSlot, Plan, Renew, Reserve, Resize, Start
from dlq_master.model.view import View
from dlq_master.model.why import ReasonCode
from dlq_master.policy.legal.check import CheckBook, IllegalPlan
from dlq_master.policy.policy import Policy
from dlq_master.policy.promise.verdicts.proof import broken
from dlq_master.policy.transit.taking import Taking


class PlanBasis(NamedTuple):
    """The basis of a plan beyond legality: the slot, and jobs with deadlines as they were."""

    slot: int
    jobs: Mapping[JobId, Job]


class Dropped(NamedTuple):
    """A change that is not made, and why."""

    change: Change
    why: str


class Rechecked(NamedTuple):
    """The part of a plan that still holds, and the dropped part."""

    plan: Plan
    dropped: tuple[Dropped, ...]


def basis_of(cluster: Cluster) -> PlanBasis:
    """To be kept until the plan comes back; O(jobs with deadlines)."""
    told = {*cluster.judged, *cluster.unjudged}
    return PlanBasis(cluster.slot, {job_id: cluster.jobs[job_id] for job_id in told})


def recheck(view: View, plan: Plan, policy: Policy, basis: PlanBasis) -> Rechecked:
    """The plan without what is stale; costs O(changes), and with promises O(jobs with
    deadlines).
    """
    dropped: list[Dropped] = []
    changes = _timely(view, plan.changes, policy, basis, dropped)
    legal = _legal(view, changes, policy, dropped)
    return Rechecked(plan._replace(changes=tuple(legal)), tuple(dropped))


def _timely(
    view: View,
    changes: tuple[Change, ...],
    policy: Policy,
    basis: PlanBasis,
    dropped: list[Dropped],
) -> list[Change]:
    """Whose cause is still there."""
    kept = []
    for change in changes:
        why = _stale(view, change, basis)
        if why:
            dropped.append(Dropped(change, why))
        else:
            kept.append(change)
    promised = [change for change in kept if isinstance(change, Reserve | NextSlot)]
    if not promised or policy.promises is None:
        return kept
    why = broken(view, promised, policy.promises)
    if why:
        dropped += [Dropped(change, why) for change in promised]
        return [change for change in kept if not isinstance(change, Reserve | NextSlot)]
    return kept


def _stale(view: View, change: Change, basis: PlanBasis) -> str:
    cluster, now_s = view.cluster, view.now_s
    if isinstance(change, Lapse):
        job = cluster.jobs.get(change.for_job)
        if job is None or job.state is not JobState.QUEUED:
            return f"job {change.for_job} does not ask for GPUs any more"
        waits = job.waiting or change.reason.code is ReasonCode.MAKES_WAY
        return "" if waits else f"job {change.for_job} has GPUs by now"
    if isinstance(change, Start | Renew):
        terms = cluster.terms
        longest_s = 2.0 * max(terms.be_term_s, terms.slo_term_s) + cluster.saves.lead_s
        return "" if change.term_end_s <= now_s + longest_s else "no term is that long"
    if isinstance(change, NextSlot | Reserve) and cluster.slot != basis.slot:
        return f"slot {cluster.slot} has been decided meanwhile"
    if isinstance(change, Reserve):
        before, now = basis.jobs.get(change.job_id), cluster.jobs.get(change.job_id)
        if before is None or now is None or _asks(before) != _asks(now):
            return f"job {change.job_id} is not what it was"
    return ""


def _asks(job: Job) -> tuple[object, ...]:
    """The basis of a decision about its deadlines."""
    return (
        *(job.state, job.request, job.steps, job.duration_estimate_s, job.keeps_work),
        *(job.band, job.slots, job.promised, job.verdict),
    )


def _legal(
    view: View, changes: list[Change], policy: Policy, dropped: list[Dropped]
) -> list[Change]:
    book = CheckBook(view, policy)
    if policy.resizing is Taking.FREE:
        book.shrink(change for change in changes if isinstance(change, Resize))
    kept = []
    for change in changes:
        try:
            book.enter(change)
        except IllegalPlan as fault:
            dropped.append(Dropped(change, fault.why))
        else:
            kept.append(change)
    torn = book.torn()
    dropped += [Dropped(start, "another member of its group does not start") for start in torn]
    return [change for change in kept if change not in torn] if torn else kept
