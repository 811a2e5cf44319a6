"""The whitelist of Aryl (section 6): servers that an inference cluster has lent, as changes of a
plan.

A server is lent (it takes jobs), asked back or away. Asked back means flagged as reclaimed too: no
new job starts there, and its jobs leave or give up their GPUs there. It leaves the whitelist only
when nobody holds anything of it. The lender decides when servers come and how many go; the cluster
chooses the servers that go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import NamedTuple

from dlq_master.model.attempts.grace import grace_s
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.nodes.node import NodeFlag
from dlq_master.model.plan import Change, Loan, Plan, Reclaim, Resize, Return, Revoke
from dlq_master.model.resources import Allocation, Slot
from dlq_master.model.transitions import StopCause
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.place.allocation.masks import count, parts_of
from dlq_master.policy.reclaim.choices import ReclaimRules
from dlq_master.policy.reclaim.demand import Choice, Demand, Toll, toll
from dlq_master.policy.reclaim.tenants import left_over, tenants_of

_ASKED_BACK = Reason(ReasonCode.ASKED_BACK)
_LENT, _EMPTY = Reason(ReasonCode.LENT), Reason(ReasonCode.EMPTY)
_NEVER_S = float("inf")


class TakenServers(NamedTuple):
    """The plan of a reclaim, the choice behind it, and what it does."""

    plan: Plan
    choice: Choice
    toll: Toll


def lend(cluster: Cluster, servers: Sequence[NodeId], more: int) -> Plan:
    """So many more of these servers may be used, those first that stand first."""
    away = [node_id for node_id in servers if not is_lent(cluster, node_id)]
    return Plan(tuple([Loan(node_id, _LENT) for node_id in away[:more]]))


def take_back(
    view: View, rules: ReclaimRules, servers: Sequence[NodeId], fewer: int
) -> TakenServers:
    """So many fewer of these servers are lent: the ones chosen by the policy's rule, and the
    effects on the jobs there. A job that keeps enough GPUs elsewhere goes on with those; the others
    save and queue again. Of servers that are equally good the last go first.
    """
    demand = demand_of(view, rules, servers, fewer)
    taken = taking(view, rules, demand, rules.rule.choose(demand, dice(view)))
    return taken._replace(
        plan=Plan((*taken.plan.changes, *_empty(view.cluster, taken.choice.servers)))
    )


def demand_of(view: View, rules: ReclaimRules, servers: Sequence[NodeId], fewer: int) -> Demand:
    """The input of the choice when so many fewer of these servers are to be lent."""
    cluster = view.cluster
    cluster.capacity.ready()
    there = [node_id for node_id in reversed(servers) if is_lent(cluster, node_id)]
    sizes = {node_id: len(cluster.nodes[node_id].gpus) for node_id in there}
    return Demand(sizes, tenants_of(view, rules, there), min(fewer, len(there)))


def dice(view: View) -> Random:
    """For rules that draw: the same at the same instant."""
    return Random(f"{view.now_s}")


def taking(view: View, rules: ReclaimRules, demand: Demand, choice: Choice) -> TakenServers:
    """The effects of this choice on the jobs there. Nobody is empty yet, as far as this plan
    goes.
    """
    cluster = view.cluster
    cluster.capacity.ready()
    changes: list[Change] = [Reclaim(node_id, _ASKED_BACK) for node_id in choice.servers]
    gone = set(choice.servers)
    changes += [
        _leaves(view, rules, cluster.jobs[tenant.job_id], gone)
        for tenant in demand.tenants
        if not gone.isdisjoint(tenant.held)
    ]
    return TakenServers(Plan(tuple(changes)), choice, toll(demand, choice.servers))


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
    """Lent, and asked back: its jobs leave."""
    flags = cluster.nodes[node_id].flags
    return NodeFlag.LOANED in flags and NodeFlag.RECLAIMED in flags


def _leaves(view: View, rules: ReclaimRules, job: Job, gone: set[NodeId]) -> Change:
    """It goes on with what it has elsewhere, or it has to stop."""
    cluster = view.cluster
    attempt = cluster.live_attempt(job)
    assert attempt is not None
    grace = grace_s(job.saves, job.rules)
    left = left_over(cluster, rules, attempt, gone)
    if left is None:
        return Revoke(attempt.key, StopCause.RECLAIM, grace, _ASKED_BACK)
    names, lease = cluster.capacity.node_ids, attempt.lease
    parts = tuple(left.items()) if rules.groups else parts_of(left)
    slots = tuple([Slot(names[node], mask) for node, mask in parts])
    reason = _ASKED_BACK._replace(
        resource="gpus",
        need=count(left),
        have=lease.allocation.width,
        detail=_wanted_back(lease.allocation.node_ids, gone),
    )
    at_s = view.now_s
    return Resize(attempt.key, Allocation(slots), lease.kind, at_s, grace, _NEVER_S, reason)


def _wanted_back(node_ids: Iterable[NodeId], gone: set[NodeId]) -> str:
    """For which of the servers that go it gives something up."""
    return f"asked back for the inference side: {', '.join(sorted(set(node_ids) & gone))}"
