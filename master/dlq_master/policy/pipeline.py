"""The six stages in order: a view of the cluster in, a plan out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.lease import decision_time_s
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.order.waiting import WaitingIndex
from dlq_master.model.plan import Plan
from dlq_master.model.values import maker
from dlq_master.model.view import View
from dlq_master.policy.place.allocation import together
from dlq_master.policy.place.allocation.outcome import Outcome
from dlq_master.policy.policy import Policy
from dlq_master.policy.rent.stage import RentDecision, RentQuestion
from dlq_master.policy.size.stage import SizeInputs
from dlq_master.policy.transit.stage import EveryTermEnds, KeepsRunning
from dlq_master.policy.transit.taking import Taking

if TYPE_CHECKING:
    import numpy as np

    from dlq_master.policy.rent.times import MachineRunTimes

_NEVER_S = float("inf")
_plan, _inputs = maker(Plan), maker(SizeInputs)


def plan(view: View, policy: Policy) -> Plan:
    """The plan for this instant. Pure: the same view gives the same plan, and nothing changes."""
    return plan_with_outcome(view, policy)[0]


def plan_with_outcome(view: View, policy: Policy) -> tuple[Plan, Outcome | None]:
    """The plan, and the decision behind it; None: the plan only prepares a decision.

    1. admit: let jobs enter; settle run times, levels and deadlines;
    2. partition: settle shares and quotas; serve slots of promises first;
    3. order: put all other jobs in line;
    4. size: decide how many GPUs each gets;
    5. place: choose its exact GPUs;
    6. transit: begin, renew and end leases.

    A seventh stage, `rent`, decides about rented machines.

    The ideal is one decision over all jobs at every instant. There are two deviations. A stage that
    has to settle something first makes a plan of its own (`again`): the decision then reads the new
    indexes. And a running job is judged only when its term ends.
    """
    first = policy.admit.settle(view)  # 1
    first = first or policy.partition.settle(view, policy.order, policy.guards.margin)  # 2
    first = first or policy.admit.chances(view)
    first = first or policy.transit.settle(view, policy.placement, policy.partition.floor_left)
    if first:
        return Plan(tuple(first), view.now_s, again=True), None
    boundary = policy.transit.boundary(view)
    outcome = _decided(view, policy, boundary.ending)  # 3, 4, 5
    changes, end_s = policy.transit.changes(view, outcome, boundary)  # 6
    # Jobs that stop at a boundary change which nodes are kept for trials. A second plan may then
    # serve a claim with free GPUs.
    trials = policy.profiling is not None and bool(boundary.ending and outcome.claims)
    wake_s = min(policy.admit.wake_s(view), boundary.next_s)
    decided_s = decision_time_s(end_s, boundary.lead_s)
    if view.now_s < decided_s < wake_s:
        wake_s = decided_s
    again = outcome.exchanged or trials
    return _plan((tuple(changes), None if wake_s == _NEVER_S else wake_s, again)), outcome


def rent(
    view: View,
    policy: Policy,
    times: Callable[[], MachineRunTimes],
    draw: Callable[[], np.random.Generator],
) -> RentDecision:
    """The seventh stage: start jobs on rented machines, rent machines, give them back.

    It is asked once a second, after the plan of the other stages. Its plan passes the same check
    and the same apply. `times`: run times on machines; `draw`: a generator, the same at each call.
    """

    order = cache(partial(lineup, view, policy))  # both functions below need it

    def outranked() -> Mapping[AttemptKey, JobId]:
        gives_way = policy.taking is Taking.BOUNDARY
        return _at_boundary(view, policy, order).outranked if gives_way else {}

    def waiting() -> WaitingIndex:
        # An order that is made anew for each plan is costly, and may name only jobs that start.
        return view.cluster.waiting if policy.order.anew else order().waiting

    return policy.rent.decide(view, RentQuestion(times, draw, outranked, waiting))


def decide(view: View, policy: Policy) -> Outcome:
    """The decision of this instant, without the changes that carry it out."""
    return _decided(view, policy, policy.transit.boundary(view).ending)


def at_boundary(view: View, policy: Policy) -> Outcome:
    """The decision if every term ended now."""
    return _at_boundary(view, policy, partial(lineup, view, policy))


def lineup(view: View, policy: Policy) -> Lineup:
    """All jobs in the order of the policy."""
    order = policy.order.lineup(view, policy.guards.margin)
    if not view.cluster.claims.out:
        return order
    from dlq_master.policy.order.suspended import out_places

    return order._replace(out=out_places(view, order, policy.guards.margin, policy.order.anew))


def returning(view: View, policy: Policy, out: Iterable[AttemptKey]) -> list[AttemptKey]:
    """Suspended attempts as they come back to their GPUs: in the order of the policy. Attempts
    without a place in it come first.
    """
    if len(view.cluster.claims.out) < 2:
        return sorted(out)
    at = {place.job_id: number for number, place in enumerate(lineup(view, policy).out)}
    return sorted(out, key=lambda key: (at.get(key.job_id, -1), key))


def wake_at_s(cluster: Cluster, policy: Policy, now_s: float) -> float | None:
    """The first instant at which a plan would differ without any event."""
    view = View(cluster, now_s)
    wake_s = min(policy.admit.wake_s(view), policy.transit.boundary(view).next_s)
    return None if wake_s == _NEVER_S else wake_s


def only_renews(cluster: Cluster, policy: Policy) -> bool:
    """Whether plans only renew terms until the next event or change of a level: no job waits, and
    no running job may be resized.
    """
    idle = not (cluster.waiting.count or cluster.pending or cluster.returning)
    running = [key.job_id for key in cluster.attempts]
    return idle and not policy.size.asks(cluster, running) and policy.promises is None


def _at_boundary(view: View, policy: Policy, order: Callable[[], Lineup]) -> Outcome:
    keys, movable = policy.size.touched(view.cluster, [*view.cluster.attempts], at_once=False)
    if policy.sizing is not None and not _must_decide(view.cluster, policy, keys, movable):
        return Outcome()
    return _placed(view, policy, EveryTermEnds(policy.transit), order(), keys, movable)


def _decided(view: View, policy: Policy, ending: Collection[AttemptKey]) -> Outcome:
    """Stages 3 to 5, if starts are not paused and there is something to decide."""
    if view.pause_starts is not None:
        return Outcome()
    at_once = policy.transit.at_once
    keys, movable = policy.size.touched(view.cluster, ending, at_once=at_once)
    if not _must_decide(view.cluster, policy, keys, movable):
        return Outcome()
    order = lineup(view, policy)  # 3
    return _placed(view, policy, policy.transit, order, keys, movable)


def _must_decide(
    cluster: Cluster, policy: Policy, keys: Collection[AttemptKey], movable: frozenset[JobId]
) -> bool:
    """Whether a job waits, or a stage has a question about running ones."""
    waits = bool(cluster.waiting.count)
    return waits or policy.size.asks(cluster, movable) or policy.partition.asks(cluster, keys)


def _placed(
    view: View,
    policy: Policy,
    transit: KeepsRunning,
    order: Lineup,
    keys: Collection[AttemptKey],
    movable: frozenset[JobId],
) -> Outcome:
    """Stages 4 and 5, and the jobs that the partition serves before the order. `transit`: the
    running jobs that may be preempted.
    """
    others = (policy.partition, policy.place, transit)

    def walked(order: Lineup) -> Outcome:
        first = policy.partition.first(view, keys, order)
        walk = policy.size.walk(_inputs((view, keys, movable, order, first, *others)))  # 4
        return walk.walked()  # 5

    if not view.cluster.groups:
        return walked(order)
    return together.decided(view.cluster, order, walked, view.now_s)
