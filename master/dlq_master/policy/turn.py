"""Plan, check and apply, until a plan asks for no further one.

`decide` makes plans of the policy. `carry_out` checks and applies a plan from elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

from dlq_master.model.cluster import drive
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.cluster.drive import Happened
from dlq_master.model.plan import Plan
from dlq_master.model.view import View
from dlq_master.model.why import ReasonCode
from dlq_master.policy.legal.check import check_delta
from dlq_master.policy.pipeline import plan_with_outcome
from dlq_master.policy.place.allocation.outcome import Outcome
from dlq_master.policy.policy import Policy


class Decided(NamedTuple):
    """The changes, in order, and when to decide again if nothing happens before.

    `fault`: the last plan raised or was not legal, and nothing of it was applied. The state is
    sound and running jobs go on; the caller decides what to do. `outcome`: the last decision,
    before it was applied; None: there was none.
    """

    happened: tuple[Happened, ...]
    wake_at_s: float | None
    fault: Exception | None = None
    outcome: Outcome | None = None


def decide(
    cluster: Cluster,
    policy: Policy,
    now_s: float,
    epoch: int,
    *,
    pause_starts: ReasonCode | None = None,
) -> Decided:
    """Plan for the cluster as it is now and apply the plan. Master and simulator both call this."""
    happened: list[Happened] = []
    last: Outcome | None = None
    cluster.suspends = policy.suspends
    while True:
        view = View(cluster, now_s, pause_starts)
        try:
            step, outcome = plan_with_outcome(view, policy)
            check_delta(view, step, policy)
        except Exception as fault:  # noqa: BLE001 - any bug of a policy; its caller says what next
            return Decided(tuple(happened), None, fault, last)
        last = outcome or last
        happened += drive.apply(cluster, step, now_s, epoch)
        if not step.again:
            return Decided(tuple(happened), step.wake_at_s, None, last)


def carry_out(view: View, plan: Plan, policy: Policy, epoch: int) -> list[Happened]:
    """Check a plan and apply it; an empty plan does nothing. Raises IllegalPlan, and then nothing
    has changed.
    """
    if not plan.changes:
        return []
    check_delta(view, plan, policy)
    view.cluster.suspends = policy.suspends
    return drive.apply(view.cluster, plan, view.now_s, epoch)
