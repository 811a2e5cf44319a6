"""The whitelist of Aryl (section 6): servers that an inference cluster has lent, as changes of a plan.

A server is lent (it takes jobs), asked back (flagged as reclaimed too: nothing new starts there, and who
is there leaves or gives up what it holds there), or away. It leaves the whitelist only when nobody holds
anything of it. When servers come and how many go is the lender's to say; which ones go is ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import NamedTuple

from dlq_master.model.attempt import ACTIVE, Attempt
from dlq_master.model.cluster import Cluster
from dlq_master.model.grace import grace_s, work_at_risk_s
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.job import Job, JobState
from dlq_master.model.machine import StopCause
from dlq_master.model.node import NodeFlag
from dlq_master.model.plan import Change, Loan, Plan, Reclaim, Resize, Return, Revoke
from dlq_master.model.pool import Parts
from dlq_master.model.resources import Allocation, Slot
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.policy import Policy
from dlq_master.policy.reclaim.demand import Choice, Demand, Tenant, Toll, toll
from dlq_master.policy.walk.masks import Masks, count, joined, kept, parts_of, without

_ASKED_BACK = Reason(ReasonCode.ASKED_BACK)
_LENT, _EMPTY = Reason(ReasonCode.LENT), Reason(ReasonCode.EMPTY)
_NEVER_S = float("inf")


class Taken(NamedTuple):
    """The plan of a reclaim, the choice behind it, and what it does."""

    plan: Plan
    choice: Choice
    toll: Toll


def lend(cluster: Cluster, servers: Sequence[NodeId], more: int) -> Plan:
    """So many more of these servers may be used, those first that stand first."""
    away = [node_id for node_id in servers if not is_lent(cluster, node_id)]
    return Plan(tuple([Loan(node_id, _LENT) for node_id in away[:more]]))


def take_back(view: View, policy: Policy, servers: Sequence[NodeId], fewer: int) -> Taken:
    """So many fewer of these servers are lent: which ones, by the policy's rule, and what that means for
    the jobs there. Whoever keeps enough GPUs elsewhere goes on with those; the others save and queue
    again. Of servers that are equally good the last go first."""
    demand = demand_of(view, policy, servers, fewer)
    taken = taking(view, policy, demand, policy.reclaim.choose(demand, dice(view)))
    return taken._replace(
        plan=Plan((*taken.plan.changes, *_empty(view.cluster, taken.choice.servers)))
    )


def demand_of(view: View, policy: Policy, servers: Sequence[NodeId], fewer: int) -> Demand:
    """What it is to choose from when so many fewer of these servers are to be lent."""
    cluster = view.cluster
    cluster.capacity.ready()
    there = [node_id for node_id in reversed(servers) if is_lent(cluster, node_id)]
    sizes = {node_id: len(cluster.nodes[node_id].gpus) for node_id in there}
    return Demand(sizes, _tenants(view, policy, there), min(fewer, len(there)))


def dice(view: View) -> Random:
    """For rules that draw: the same at the same instant."""
    return Random(f"{view.now_s}")


def taking(view: View, policy: Policy, demand: Demand, choice: Choice) -> Taken:
    """What this choice means for the jobs there. Nobody is empty yet, as far as this plan goes."""
    cluster = view.cluster
    cluster.capacity.ready()
    changes: list[Change] = [Reclaim(node_id, _ASKED_BACK) for node_id in choice.servers]
    gone = set(choice.servers)
    spared: set[JobId] = set()
    for tenant in demand.tenants:
        if gone.isdisjoint(tenant.base) and gone.isdisjoint(tenant.flexible):
            continue
        change = _leaves(view, policy, cluster.jobs[tenant.job_id], gone)
        if isinstance(change, Resize):
            spared.add(tenant.job_id)
        changes.append(change)
    return Taken(Plan(tuple(changes)), choice, toll(demand, choice.servers, spared))


def returns(cluster: Cluster, servers: Iterable[NodeId]) -> Plan:
    """Those of these servers that were asked back, and on which nobody is any more."""
    return Plan(
        tuple(_empty(cluster, [node_id for node_id in servers if is_asked_back(cluster, node_id)]))
    )


def _empty(cluster: Cluster, servers: Iterable[NodeId]) -> list[Return]:
    return [Return(node_id, _EMPTY) for node_id in servers if not cluster.attempts_on(node_id)]


def is_lent(cluster: Cluster, node_id: NodeId) -> bool:
    """Lent, and not asked back."""
    flags = cluster.nodes[node_id].flags
    return NodeFlag.LOANED in flags and NodeFlag.RECLAIMED not in flags


def is_asked_back(cluster: Cluster, node_id: NodeId) -> bool:
    """Lent, and asked back: whoever is there leaves."""
    flags = cluster.nodes[node_id].flags
    return NodeFlag.LOANED in flags and NodeFlag.RECLAIMED in flags


def _tenants(view: View, policy: Policy, there: Iterable[NodeId]) -> list[Tenant]:
    """Who would have to leave these servers. Who is leaving already costs nothing more."""
    cluster = view.cluster
    keys = sorted({key for node_id in there for key in cluster.attempts_on(node_id)})
    lent = set(there)
    found = []
    for key in keys:
        attempt = cluster.attempts[key]
        if attempt.state not in ACTIVE:
            continue
        base, flexible = split(cluster, policy, attempt)
        names = cluster.capacity.node_ids
        needed, spare = (
            {names[node]: mask.bit_count() for node, mask in masks.items() if names[node] in lent}
            for masks in (base, flexible)
        )
        elsewhere = len({names[node] for node in {*base, *flexible}} - lent)
        beside = count(base) + count(flexible) - sum(needed.values()) - sum(spare.values())
        lost_gpu_s = attempt.lease.allocation.width * lost_s(view, attempt)
        found.append(
            Tenant(key.job_id, needed, spare, elsewhere, beside=beside, lost_gpu_s=lost_gpu_s)
        )
    return found


def lost_s(view: View, attempt: Attempt) -> float:
    """What its preemption takes of each GPU: to save and to resume, or all since it has saved."""
    terms, job = view.cluster.terms, view.cluster.jobs[attempt.key.job_id]
    return (
        terms.save_lead_s + terms.resume_s
        if job.keeps_work
        else work_at_risk_s(attempt, view.now_s)
    )


def split(cluster: Cluster, policy: Policy, attempt: Attempt) -> tuple[Masks, Masks]:
    """Its base and what it holds beyond, as masks by node; one that cannot be resized holds only a base."""
    parts = cluster.capacity.parts(attempt.lease.allocation)
    job = cluster.jobs[attempt.key.job_id]
    every = {node: mask for some in parts.values() for node, mask in some}
    if not _resizable(cluster, policy, job) or len(parts) != 1:
        return every, {}
    in_order = policy.placement.groups
    base = kept(job, tuple(*parts.values()), job.request.base, in_order=in_order)
    return base, without(every, base)


def _resizable(cluster: Cluster, policy: Policy, job: Job) -> bool:
    return policy.sizing is not None and cluster.elastic(job) and job.state is JobState.QUEUED


def _leaves(view: View, policy: Policy, job: Job, gone: set[NodeId]) -> Change:
    """It goes on with what it has elsewhere, or it has to stop."""
    cluster = view.cluster
    attempt = cluster.live_attempt(job)
    assert attempt is not None
    grace = grace_s(job.saves, job.rules)
    left = _left_over(cluster, policy, job, attempt, gone)
    if left is None:
        return Revoke(attempt.key, StopCause.RECLAIM, grace, _ASKED_BACK)
    names, lease = cluster.capacity.node_ids, attempt.lease
    parts = tuple(left.items()) if policy.placement.groups else parts_of(left)
    slots = tuple([Slot(names[node], mask) for node, mask in parts])
    reason = _ASKED_BACK._replace(resource="gpus", need=count(left), have=lease.allocation.width)
    at_s = view.now_s
    return Resize(attempt.key, Allocation(slots), lease.kind, at_s, grace, _NEVER_S, reason)


def _left_over(
    cluster: Cluster, policy: Policy, job: Job, attempt: Attempt, gone: set[NodeId]
) -> Masks | None:
    """The GPUs with which it can go on: as many as one of its sizes has, on nodes that take work."""
    if not _resizable(cluster, policy, job):
        return None
    capacity = cluster.capacity
    parts = capacity.parts(attempt.lease.allocation)
    if len(parts) != 1:
        return None
    ((gpu_type, held),) = parts.items()
    usable = capacity.open[gpu_type].masks
    names = capacity.node_ids
    stays = {
        node: mask & usable[node]
        for node, mask in held
        if names[node] not in gone and mask & usable[node]
    }
    rest: Parts = tuple(
        [part._replace(mask=stays[part.ordinal]) for part in held if part.ordinal in stays]
    )
    if count(stays) < job.request.base:
        return None
    base = kept(job, rest, job.request.base, in_order=policy.placement.groups)
    if count(base) < job.request.base:
        return None
    return joined(job, base, without(stays, base), count(stays))
