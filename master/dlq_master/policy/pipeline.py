"""The six stages in order: a view of the cluster in, a plan out."""

from __future__ import annotations

from collections.abc import Iterable

from dlq_master.model.cluster import Cluster
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.lease import decision_time_s, first_term_end_s, renewed_term_end_s
from dlq_master.model.plan import Change, Lapse, Plan, Renew, Start
from dlq_master.model.pool import Parts
from dlq_master.model.resources import Allocation, Slot
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.admit.any_that_fits import admissions
from dlq_master.policy.order.las import demotions, promotions
from dlq_master.policy.partition.whole import kind_of_lease
from dlq_master.policy.policy import Policy
from dlq_master.policy.transit.taking import Taking, due, price_s
from dlq_master.policy.walk.contest import Contest
from dlq_master.policy.walk.counts import Counts
from dlq_master.policy.walk.outcome import Chosen, Outcome, Outranked
from dlq_master.policy.walk.pinned import pinned
from dlq_master.policy.walk.space import Space
from dlq_master.policy.walk.walk import Ground, walk

_FITS = Reason(ReasonCode.FITS)
_TERM_OVER = Reason(ReasonCode.TERM_OVER)
_NEVER_S = float("inf")


def plan(view: View, policy: Policy) -> Plan:
    """What to change now. Pure: the same view gives the same plan, and nothing is changed.

    The ideal is one decision over all jobs at every instant. Two deviations: jobs that enter,
    sink or rise are moved by a plan of their own (`again`), so that the decision reads the
    indexes of the new order; and work that runs is judged only when its term ends.
    """
    moves = _moves(view, policy)
    if moves:
        return Plan(tuple(moves), view.now_s, again=True)
    ending = due(view) if policy.grid else []
    outcome = decide(view, policy, ending)
    chosen, outranked = outcome.chosen, outcome.outranked
    changes: list[Change] = []
    if outranked:
        changes += [_lapse(view, policy, victim) for victim in outranked]
    ends_s: set[float] = set()
    if chosen:
        starting = _starts(view, policy, chosen)
        changes += starting
        ends_s.add(starting[0].term_end_s)
    if ending:
        renewals = _renewals(view, ending, outranked)
        changes += renewals
        ends_s.update([renewal.term_end_s for renewal in renewals])
    return Plan(tuple(changes), wake_at_s(view.cluster, policy, view.now_s, ends_s))


def wake_at_s(
    cluster: Cluster, policy: Policy, now_s: float, new_ends_s: Iterable[float] = ()
) -> float | None:
    """The first instant at which a plan would differ without any event.

    `new_ends_s`: terms that end so once the plan at hand is applied.
    """
    wake_s = _NEVER_S
    for timers in (cluster.crossings, cluster.promotions):
        if timers.at:
            wake_s = min(wake_s, timers.next_s() or wake_s)
    if policy.grid:
        lead_s = cluster.lead_s
        for end_s in (*cluster.by_term, *new_ends_s):
            if now_s < (decided_s := decision_time_s(end_s, lead_s)) < wake_s:
                wake_s = decided_s
    return None if wake_s == _NEVER_S else wake_s


def _moves(view: View, policy: Policy) -> list[Change]:
    """Jobs that enter, sink or rise."""
    cluster = view.cluster
    moves: list[Change] = []
    if cluster.pending:
        moves += admissions(view, policy.placement)
    if cluster.crossings.at:
        moves += demotions(view)
    if cluster.promotions.at:
        moves += promotions(view)
    return moves


def decide(view: View, policy: Policy, ending: list[AttemptKey]) -> Outcome:
    """Who starts, who leaves, and for whom GPUs are kept."""
    cluster, taking = view.cluster, policy.taking
    if view.pause_starts is not None or not cluster.waiting.count:
        return Outcome()
    if taking is Taking.FREE:
        return walk(contest(cluster, policy, None, at_once=True))
    if taking is Taking.BOUNDARY and ending:
        return walk(contest(cluster, policy, view.now_s, at_once=False))
    return walk(Space(cluster, policy.placement, blocking=policy.blocking))


def contest(cluster: Cluster, policy: Policy, now_s: float | None, *, at_once: bool) -> Ground:
    """The ground on which those have to leave whose terms are decided by `now_s` (None: all)."""
    ground = Counts if policy.placement.counts_only else Contest
    return ground(cluster, policy.placement, pinned(cluster, now_s), at_once=at_once)


def _lapse(view: View, policy: Policy, outranked: Outranked) -> Lapse:
    key, for_job = outranked
    attempt = view.cluster.attempts[key]
    at_s = max(attempt.lease.term_end_s, view.now_s) if policy.grid else view.now_s
    grace_s = price_s(policy.taking, view.cluster.jobs[key.job_id])
    return Lapse(
        key, at_s, grace_s, for_job, Reason(ReasonCode.OUTRANKED, blocking_jobs=(for_job,))
    )


def _starts(view: View, policy: Policy, chosen: list[Chosen]) -> list[Start]:
    kind = kind_of_lease()
    cluster = view.cluster
    end_s = _NEVER_S
    if policy.grid:
        end_s = first_term_end_s(view.now_s, kind, cluster.terms, cluster.lead_s)
    node_ids = cluster.capacity.node_ids
    return [
        Start(job_id, _allocation(node_ids, parts), kind, end_s, _FITS) for job_id, parts in chosen
    ]


def _allocation(node_ids: list[NodeId], parts: Parts) -> Allocation:
    """The parts with the names of their nodes; rank order is node order."""
    if len(parts) == 1:  # nearly always
        ordinal, mask = parts[0]
        return Allocation((Slot(node_ids[ordinal], mask),))
    return Allocation(tuple([Slot(node_ids[ordinal], mask) for ordinal, mask in parts]))


def _renewals(view: View, ending: list[AttemptKey], outranked: list[Outranked]) -> list[Renew]:
    leaving = {key for key, _ in outranked}
    terms = view.cluster.terms
    # After an absence terms may have ended long ago: none is renewed into what is due now.
    earliest_s = view.now_s + view.cluster.lead_s
    renewals = []
    for key in ending:
        if key not in leaving:
            lease = view.cluster.attempts[key].lease
            end_s = renewed_term_end_s(max(lease.term_end_s, earliest_s), lease.kind, terms)
            renewals.append(Renew(key, end_s, _TERM_OVER))
    return renewals
