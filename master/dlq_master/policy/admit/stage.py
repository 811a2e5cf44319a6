"""The admit stage: jobs enter, and what is learned of them is written down before any decision.

Decisions read the packing, run times, levels and promises of jobs, and each step changes one of
these. So a step that finds a change makes a plan of its own. The next plan goes on behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.plan import Change, NextSlot, Repack
from dlq_master.model.view import View
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.admit.any_that_fits import admissions
from dlq_master.policy.admit.estimates import estimates, foretold
from dlq_master.policy.admit.submission import opens_s
from dlq_master.policy.order.las import demotions, promotions
from dlq_master.policy.partition.kept_slots import put_off
from dlq_master.policy.partition.profiling import next_scale_s, scale
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.promise.capacity.grids import due_slot, next_decision_s
from dlq_master.policy.promise.capacity.rules import DeadlinesDecided, Promises
from dlq_master.policy.sensitivity.packing import PackingRule
from dlq_master.policy.trial.rules import TrialRules

_NEVER_S = float("inf")
_NOBODY_ASKS = Reason(ReasonCode.SLOT_OVER)
_LEARNED = Reason(ReasonCode.LEARNED)


class Admits(NamedTuple):
    """The steps of this policy, in order, and when one of them has something to do by the clock."""

    steps: tuple[Callable[[View], Sequence[Change]], ...]
    wakes: tuple[Callable[[View], float], ...]  # inf: never

    def settle(self, view: View) -> Sequence[Change]:
        """The changes of the first step that has any."""
        for step in self.steps:
            if changes := step(view):
                return changes
        return ()

    def wake_s(self, view: View) -> float:
        """When a step has something to change though nothing has happened (inf: never)."""
        next_s = next_move_s(view.cluster)
        for wake in self.wakes:  # most policies have none
            next_s = min(next_s, wake(view))
        return next_s


def admits(
    placement: Placement,
    packing: PackingRule | None,
    profiling: TrialRules | None,
    promises: Promises | None,
    *,
    measures: bool,
) -> Admits:
    """The steps of a policy with these choices; a choice that is None has no step."""
    steps: list[Callable[[View], Sequence[Change]]] = [partial(_repacked, rule=packing)]
    wakes: list[Callable[[View], float]] = []
    if measures:
        steps.append(lambda view: _measured(view, profiling))
    steps.append(partial(_moved, placement=placement, rules=profiling))
    if promises is not None:
        steps.append(lambda view: promised(view, promises))
        wakes.append(_verdict_s)
    if promises is not None and profiling is not None:
        wakes.append(lambda view: opens_s(view, profiling))
        wakes.append(lambda view: next_scale_s(view.cluster, profiling))
    return Admits(tuple(steps), tuple(wakes))


def next_move_s(cluster: Cluster) -> float:
    """When the next running job changes its level (inf: never)."""
    next_s = _NEVER_S
    for timers in (cluster.levels.crossings, cluster.levels.promotions):
        if timers.at:
            at_s = timers.next_s()
            if at_s is not None and at_s < next_s:
                next_s = at_s
    return next_s


def promised(view: View, rules: Promises) -> tuple[Change, ...]:
    """The next slot, if it has to be decided, and the deadlines that are judged."""
    # Numerical libraries come with these: while no job has a deadline a master does without.
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


def _repacked(view: View, rule: PackingRule | None) -> Sequence[Change]:
    """The packing of jobs by their traffic, if the cluster keeps another one."""
    packing = None if rule is None else rule(view.cluster)
    known = view.cluster.packing
    return () if packing is known or packing == known else (Repack(packing, _LEARNED),)


def _measured(view: View, rules: TrialRules | None) -> Sequence[Change]:
    """How many GPUs are for trials, if that has to be decided, and which jobs are tried.

    Without GPUs for trials a job without a history is measured where it runs.
    """
    if rules is None:
        return foretold(view) if view.cluster.profiling.of_family else ()
    scaled = scale(view, rules)
    found = estimates(view) if view.cluster.profiling.unknown else []
    return tuple(found) if scaled is None else (scaled, *found)


def _moved(view: View, placement: Placement, rules: TrialRules | None) -> Sequence[Change]:
    """Jobs that enter their queue, or change their level."""
    cluster = view.cluster
    levels = cluster.levels
    timed = levels.crossings.at or levels.promotions.at
    if not cluster.pending and not (timed and next_move_s(cluster) <= view.now_s):
        return ()
    moves: list[Change] = []
    if cluster.pending:
        moves += admissions(view, placement, rules)
    if levels.crossings.at:
        moves += demotions(view)
    if levels.promotions.at:
        moves += promotions(view)
    return moves


def _verdict_s(view: View) -> float:
    return next_decision_s(view.cluster) if view.cluster.judged else _NEVER_S
