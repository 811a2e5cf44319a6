"""The six stages in order: a view of the cluster in, a plan out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey
from dlq_master.model.lease import decision_time_s
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.plan import Change, NextSlot, Plan, Repack
from dlq_master.model.values import maker
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy import verbs
from dlq_master.policy.admit.any_that_fits import admissions
from dlq_master.policy.admit.estimates import estimates, foretold
from dlq_master.policy.admit.submission import opens_s
from dlq_master.policy.order import by_key, expected_reward, finish_time
from dlq_master.policy.order.las import demotions, promotions
from dlq_master.policy.order.share import weigh
from dlq_master.policy.partition.borrowing import relabelled
from dlq_master.policy.partition.kept_slots import put_off
from dlq_master.policy.partition.profiling import next_scale_s, scale
from dlq_master.policy.place.allocation.allocator import Allocator, walk
from dlq_master.policy.place.allocation.by_count import Counts
from dlq_master.policy.place.allocation.outcome import Outcome
from dlq_master.policy.place.allocation.pinned import pinned
from dlq_master.policy.place.allocation.quota import Quota, by_quota
from dlq_master.policy.place.allocation.space import Space
from dlq_master.policy.policy import Policy
from dlq_master.policy.promise.capacity.grids import due_slot, next_decision_s
from dlq_master.policy.promise.capacity.rules import DeadlinesDecided, Promises
from dlq_master.policy.promise.verdicts.growth import tied
from dlq_master.policy.reserved.evacuation import evacuated
from dlq_master.policy.reserved.slot_begin import seating_of
from dlq_master.policy.reserved.slot_holders import SlotContest, SlotSpace, pinned_too
from dlq_master.policy.size import elastic
from dlq_master.policy.size.question import ElasticQuestion
from dlq_master.policy.size.sizing import Sizing
from dlq_master.policy.transit.contest import Contest
from dlq_master.policy.transit.guards import cooling, protected, resizable
from dlq_master.policy.transit.taking import Taking, due
from dlq_master.policy.trial.rules import TrialRules

_NEVER_S = float("inf")
_plan = maker(Plan)
_NOBODY_ASKS = Reason(ReasonCode.SLOT_OVER)
_LEARNED = Reason(ReasonCode.LEARNED)
_FREE, _BOUNDARY = Taking.FREE, Taking.BOUNDARY  # looking a member up costs more than comparing it


def plan(view: View, policy: Policy) -> Plan:
    """What to change now. Pure: the same view gives the same plan, and nothing is changed."""
    return plan_with_outcome(view, policy)[0]


def plan_with_outcome(view: View, policy: Policy) -> tuple[Plan, Outcome | None]:
    """The plan, and the decision behind it; None: the plan is only about what has to be done before
    any decision.

    The ideal is one decision over all jobs at every instant. Two deviations: jobs that enter, sink
    or rise are moved by a plan of their own (`again`), so that the decision reads the indexes of
    the new order, as it reads what is left once jobs were placed as a whole; and work that runs is
    judged only when its term ends.
    """
    cluster, now_s = view.cluster, view.now_s
    wake_s = next_move_s(cluster)
    first = _first(view, policy, wake_s)
    if first:
        return Plan(tuple(first), now_s, again=True), None
    if policy.promises is not None:
        wake_s = min(wake_s, _promised_s(view, policy))
    ending: list[AttemptKey] = []
    lead_s = 0.0
    if policy.grid:
        lead_s = cluster.saves.lead_s
        ending, decided_s = due(view, lead_s)
        if decided_s < wake_s:
            wake_s = decided_s
    outcome = _decide(view, policy, ending)
    changes, end_s = verbs.changes(view, policy, outcome, ending, lead_s)
    if now_s < (decided_s := decision_time_s(end_s, lead_s)) < wake_s:
        wake_s = decided_s
    # Who leaves at a boundary changes which nodes are kept for trials: what is free may do for who
    # claims.
    again = outcome.exchanged or bool(ending and outcome.claims and policy.profiling is not None)
    return _plan((tuple(changes), None if wake_s == _NEVER_S else wake_s, again)), outcome


def _first(view: View, policy: Policy, move_s: float) -> Sequence[Change]:
    """What has to be done before anything is decided, since it changes the indexes that decisions
    read; `move_s`: when the next job sinks or rises."""
    cluster = view.cluster
    packing = None if policy.packing is None else policy.packing(cluster)
    if packing is not cluster.packing and packing != cluster.packing:
        return [Repack(packing, _LEARNED)]
    if policy.profile_s is not None and (told := _profiles(view, policy.profiling)):
        return told
    if (move_s <= view.now_s or cluster.pending) and (moves := _moves(view, policy)):
        return moves
    if policy.promises is not None and (promised := promises(view, policy.promises)):
        return promised
    if policy.shares is not None and (weighed := weigh(view, policy.shares)) is not None:
        return [weighed]
    if policy.by_team:
        words = (policy.borrowing, policy.limits, policy.job_limits)
        lent = relabelled(view, lineup(view, policy).running, *words)
        if lent:
            return lent
    if cluster.returning and view.pause_starts is None:
        return verbs.returns(view, policy)
    return ()


def wake_at_s(cluster: Cluster, policy: Policy, now_s: float) -> float | None:
    """The first instant at which a plan would differ without any event."""
    wake_s = next_move_s(cluster)
    if policy.promises is not None:
        wake_s = min(wake_s, _promised_s(View(cluster, now_s), policy))
    if policy.grid:
        wake_s = min(wake_s, due(View(cluster, now_s), cluster.saves.lead_s)[1])
    return None if wake_s == _NEVER_S else wake_s


def _promised_s(view: View, policy: Policy) -> float:
    """When there is something to decide about promises, or about trials (inf: never)."""
    cluster, profiles = view.cluster, policy.profiling
    wake_s = next_decision_s(cluster) if cluster.judged else _NEVER_S
    if profiles is not None:
        wake_s = min(wake_s, opens_s(view, profiles), next_scale_s(cluster, profiles))
    return wake_s


def only_renews(cluster: Cluster, policy: Policy) -> bool:
    """Whether every plan until the next event or move (`next_move_s`) would renew terms and do
    nothing else: nobody waits, and nobody who runs is resized."""
    idle = not (cluster.waiting.count or cluster.pending or cluster.returning)
    resizes = policy.sizing is not None and elastic.somebody(
        cluster, (key.job_id for key in cluster.attempts)
    )
    return idle and not resizes and policy.promises is None


def decide(view: View, policy: Policy) -> Outcome:
    """Who starts, who leaves, and for whom GPUs are kept."""
    return _decide(view, policy, due(view, view.cluster.saves.lead_s)[0] if policy.grid else [])


def _decide(view: View, policy: Policy, ending: list[AttemptKey]) -> Outcome:
    cluster, taking = view.cluster, policy.taking
    if view.pause_starts is None and policy.sizing is not None:
        at_once = policy.resizing is _FREE
        keys = [attempt.key for attempt in cluster.attempts.values()] if at_once else ending
        return _resized(view, policy, policy.sizing, keys, at_once=at_once)
    if view.pause_starts is not None:
        return Outcome()
    if not cluster.waiting.count and not (policy.promises and evacuated(cluster, ending)):
        return Outcome()
    if policy.promises is not None:
        return _seated(view, policy, ending)
    if taking is _FREE:
        return walk(contest(view, policy, None, cluster.attempts, at_once=True))
    if ending and taking is _BOUNDARY:
        return walk(contest(view, policy, view.now_s, ending, at_once=False))
    order = lineup(view, policy)
    if policy.quotas is not None:
        return by_quota(Quota(cluster, order, policy.placement, policy.quotas))
    return walk(Space(cluster, order, policy.placement, blocking=policy.blocking))


def _profiles(view: View, rules: TrialRules | None) -> Sequence[Change]:
    """How many GPUs are for trials, if that has to be decided, and who is tried; None: nobody is,
    where history tells nothing they are measured where they run."""
    if rules is None:
        return foretold(view) if view.cluster.profiling.of_family else ()
    scaled = scale(view, rules)
    told = estimates(view) if view.cluster.profiling.unknown else []
    return tuple(told) if scaled is None else (scaled, *told)


def promises(view: View, rules: Promises) -> tuple[Change, ...]:
    """Who runs in the next slot, if that has to be decided, and whose deadlines are promised."""
    # Numerical libraries come with these: while nobody has a deadline a master does without.
    slot = due_slot(view.cluster, view.now_s)
    due = view.cluster.slot < slot
    if due and not view.cluster.judged:
        return (NextSlot(slot, _NOBODY_ASKS),)
    if rules.decided is not DeadlinesDecided.HERE:
        return put_off(view, rules, slot if due else None)
    if due:
        from dlq_master.policy.partition.slots import next_slot

        return tuple(next_slot(view, rules))
    if view.cluster.unjudged:
        from dlq_master.policy.admit.deadlines import verdicts

        return tuple(verdicts(view, rules))
    return ()


def _seated(view: View, policy: Policy, ending: list[AttemptKey]) -> Outcome:
    """Those who hold the present slot, then trials, and then everybody else."""
    cluster, order = view.cluster, lineup(view, policy)
    seating = seating_of(view, policy, ending, order.running)
    if not ending:
        space = SlotSpace(cluster, order, policy.placement)
        seating.serve(space)
        return space.outcome if space.spent else walk(space)
    fixed = pinned_too(cluster.running.places, pinned(cluster, view.now_s), seating.fixed)
    contest = SlotContest(cluster, order, policy.placement, fixed, at_once=False)
    seating.serve(contest)
    return walk(contest)


def at_boundary(view: View, policy: Policy) -> Outcome:
    """What would be decided if every term ended now."""
    keys = [*view.cluster.attempts]
    if policy.sizing is not None:
        return _resized(view, policy, policy.sizing, keys, at_once=False)
    if policy.promises is not None:
        return _seated(view, policy, keys)
    return walk(contest(view, policy, None, keys, at_once=False))


def _resized(
    view: View, policy: Policy, sizing: Sizing, keys: Collection[AttemptKey], *, at_once: bool
) -> Outcome:
    cluster, guards = view.cluster, policy.guards
    rules, old = policy.promises, resizable(cluster, guards, keys)
    movable = elastic.movable(cluster, old if rules is None else keys)
    asked_for = cluster.waiting.count or elastic.somebody(cluster, movable)
    if not asked_for and not (policy.promises and evacuated(cluster, keys)):
        return Outcome()
    order, preempts = lineup(view, policy), policy.taking is not Taking.NEVER
    asked = (cluster, view.now_s, order, policy.placement, sizing, movable, preempts, at_once)
    seating = None if rules is None else seating_of(view, policy, keys, order.running)
    safe = {} if seating is not None else protected(cluster, guards, keys)
    cool = cooling(cluster, guards, keys)
    if rules is None:
        return elastic.decide(ElasticQuestion(*asked, seating, frozenset(safe.values()), cool))
    young = movable.difference([key.job_id for key in old])
    held = tied(cluster, cluster.promised, rules)
    return elastic.decide(ElasticQuestion(*asked, seating, (), cool | young, young, held))


def lineup(view: View, policy: Policy) -> Lineup:
    """Who stands where: by the positions that the cluster keeps, or by the policy's own order."""
    if policy.auction is not None:
        return finish_time.lineup(view, policy.auction)
    if policy.chances is not None:
        return expected_reward.lineup(view, policy.chances)
    key = view.cluster.key
    if key is None:
        return view.cluster.lineup
    return by_key.lineup(view, key, policy.guards.margin)


def contest(
    view: View,
    policy: Policy,
    now_s: float | None,
    keys: Iterable[AttemptKey],
    *,
    at_once: bool,
) -> Allocator:
    """The allocator of this plan. It may preempt the attempts `keys`, and those whose terms are
    decided by `now_s` (None: all).
    """
    cluster, order = view.cluster, lineup(view, policy)
    allocator = Counts if policy.placement.counts_only else Contest
    fixed = pinned(cluster, now_s, protected(cluster, policy.guards, keys))
    return allocator(cluster, order, policy.placement, fixed, at_once=at_once)


def next_move_s(cluster: Cluster) -> float:
    """When the next job sinks or rises (inf: never)."""
    next_s = _NEVER_S
    for timers in (cluster.levels.crossings, cluster.levels.promotions):
        if timers.at:
            at_s = timers.next_s()
            if at_s is not None and at_s < next_s:
                next_s = at_s
    return next_s


def _moves(view: View, policy: Policy) -> list[Change]:
    """Jobs that enter, sink or rise."""
    cluster = view.cluster
    moves: list[Change] = []
    if cluster.pending:
        moves += admissions(view, policy.placement, policy.profiling)
    if cluster.levels.crossings.at:
        moves += demotions(view)
    if cluster.levels.promotions.at:
        moves += promotions(view)
    return moves
