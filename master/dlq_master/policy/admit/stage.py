"""The admit stage: jobs enter, and what is learned of them is written down before any decision.

Decisions read the packing, run times, levels and promises of jobs, and each step changes one of
these. So a step that finds a change makes a plan of its own. The next plan goes on behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """The steps of a policy with these choices; a choice that is None has no step. `measures`: run
    times are learned."""

    placement: Placement
    packing: PackingRule | None
    profiling: TrialRules | None
    promises: Promises | None
    measures: bool

    def settle(self, view: View) -> Sequence[Change]:
        """The changes of the first step that has any."""
        packing, cluster, levels = self.packing, view.cluster, view.cluster.levels
        packed = packing is not None or cluster.packing is not None
        if packed and (changes := _repacked(cluster, packing)):
            return changes
        if self.measures and (changes := _measured(view, self.profiling)):
            return changes
        timed = levels.crossings.at or levels.promotions.at
        if (cluster.pending or timed) and (changes := _moved(view, self.placement, self.profiling)):
            return changes
        return () if self.promises is None else promised(view, self.promises)

    def wake_s(self, view: View) -> float:
        """When a step has something to change though nothing has happened (inf: never)."""
        next_s = next_move_s(view.cluster)
        if self.promises is None:
            return next_s
        if view.cluster.judged:
            next_s = min(next_s, next_decision_s(view.cluster))
        if self.profiling is None:
            return next_s
        return min(
            next_s, opens_s(view, self.profiling), next_scale_s(view.cluster, self.profiling)
        )


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
    if view.cluster.to_judge():
        from dlq_master.policy.admit.deadlines import verdicts

        return tuple(verdicts(view, rules))
    return ()


def _repacked(cluster: Cluster, rule: PackingRule | None) -> Sequence[Change]:
    """The packing of jobs by their traffic, if the cluster keeps another one."""
    packing = None if rule is None else rule(cluster)
    known = cluster.packing
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
    cluster = view.cluster
    levels = cluster.levels
    if not cluster.pending and next_move_s(cluster) > view.now_s:
        return ()
    moves: list[Change] = []
    if cluster.pending:
        moves += admissions(view, placement, rules)
    if levels.crossings.at:
        moves += demotions(view)
    if levels.promotions.at:
        moves += promotions(view)
    return moves
