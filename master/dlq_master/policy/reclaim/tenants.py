"""The jobs on lent servers: their GPUs there, and the parts with which each can go on when some
servers go.

An elastic job can go on with any of its GPUs on nodes that take work, as many as its base has. So
its base is counted where it stays: on the cluster's own nodes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from dlq_master.model.attempts.attempt import ACTIVE, Attempt
from dlq_master.model.attempts.grace import work_at_risk_s
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.nodes.free_gpus import Parts
from dlq_master.model.view import View
from dlq_master.policy.place.allocation.masks import Masks, count, joined, kept, merged, without
from dlq_master.policy.place.allocation.type_capacity import usable
from dlq_master.policy.reclaim.choices import ReclaimRules
from dlq_master.policy.reclaim.demand import Tenant


def tenants_of(view: View, rules: ReclaimRules, servers: Iterable[NodeId]) -> list[Tenant]:
    """The jobs that would have to leave these servers. A job that is leaving already costs nothing
    more.
    """
    cluster, lent = view.cluster, set(servers)
    keys = sorted({key for node_id in lent for key in cluster.attempts_on(node_id)})
    attempts = [cluster.attempts[key] for key in keys if not gives_up(cluster.attempts[key], lent)]
    return [_tenant(view, rules, one, lent) for one in attempts if one.state in ACTIVE]


def gives_up(attempt: Attempt, servers: Set[NodeId]) -> bool:
    """Whether its priorities there leave already, while the others run on."""
    if attempt.resize is None or attempt.stop_cause is not None:
        return False
    return attempt.going >= servers & set(attempt.lease.allocation.node_ids)


def left_over(
    cluster: Cluster, rules: ReclaimRules, attempt: Attempt, gone: Set[NodeId]
) -> Masks | None:
    """The GPUs with which it goes on when these servers go: as many as one of its sizes has. None:
    it has to stop.
    """
    job, names = cluster.jobs[attempt.key.job_id], cluster.capacity.node_ids
    parts = tuple(
        [part for part in _any_of(cluster, rules, attempt) if names[part.ordinal] not in gone]
    )
    base = kept(job, parts, job.request.base, in_order=rules.groups)
    if count(base) < job.request.base:
        return None
    stays = dict(parts)
    return joined(job, base, without(stays, base), count(stays))


def lost_s(view: View, attempt: Attempt) -> float:
    """The loss per GPU by its preemption: to save and to resume, or all since it has saved."""
    terms, job = view.cluster.terms, view.cluster.jobs[attempt.key.job_id]
    return (
        terms.save_lead_s + terms.resume_s
        if job.keeps_work and not _never_saves(job)
        else work_at_risk_s(attempt, view.now_s)
    )


# --- helpers, in order of use ---------------------------------------------------------------------


def _never_saves(job: Job) -> bool:
    """It has lost work before, has saved nothing yet, and its spec does not say that it could."""
    return job.lost_gpu_s > 0.0 and not job.rules.saves and not job.saves and job.checkpoint is None


def _tenant(view: View, rules: ReclaimRules, attempt: Attempt, lent: Set[NodeId]) -> Tenant:
    cluster = view.cluster
    job, names = cluster.jobs[attempt.key.job_id], cluster.capacity.node_ids
    held = {
        node: mask
        for some in cluster.capacity.parts(attempt.lease.allocation).values()
        for node, mask in some
    }
    parts = _any_of(cluster, rules, attempt)
    spare = count(dict(parts)) - job.request.base
    if parts and spare >= 0:
        base = _base(job, parts, names, lent, in_order=rules.groups)
        rest = without(dict(parts), base)
        flexible = {node: rest.get(node, 0) for node in held if node in rest or node not in base}
    else:
        base, flexible = held, {}
    needed, given = (
        {names[node]: mask.bit_count() for node, mask in masks.items() if names[node] in lent}
        for masks in (base, flexible)
    )
    here = {node: mask for node, mask in held.items() if names[node] in lent}
    return Tenant(
        attempt.key.job_id,
        needed,
        given,
        elsewhere=len(held) - len(here),
        beside=count(held) - count(here),
        lost_gpu_s=attempt.lease.allocation.width * lost_s(view, attempt),
        spare=spare if flexible else None,
    )


def _any_of(cluster: Cluster, rules: ReclaimRules, attempt: Attempt) -> Parts:
    """Its GPUs on nodes that take work, if any of these will do as its base; none, if it has to
    have all.
    """
    job, capacity = cluster.jobs[attempt.key.job_id], cluster.capacity
    held = capacity.parts(attempt.lease.allocation)
    resizable = rules.resizes and cluster.elastic(job) and job.state is JobState.QUEUED
    if not resizable or len(held) != 1 or attempt.resize is not None:
        return ()
    parts: Parts = next((parts for _, parts in usable(capacity, held)), ())
    if job.request.nodes is None:
        return parts
    each = job.request.gpus // job.request.nodes  # less of a node is of no use to it
    return tuple([part for part in parts if part.mask.bit_count() == each])


def _base(
    job: Job, parts: Parts, names: list[NodeId], lent: Set[NodeId], *, in_order: bool
) -> Masks:
    """The GPUs of its base: those outside of the lent servers first."""
    stay = tuple([part for part in parts if names[part.ordinal] not in lent])
    base = kept(job, stay, job.request.base, in_order=in_order)
    rest = tuple([part for part in parts if names[part.ordinal] in lent])
    more = kept(job, rest, job.request.base - count(base), in_order=in_order)
    return merged(base, more)
