"""The admit stage: jobs enter, and learned facts about them are stored before any decision.

Decisions read the packing, run times, levels and promises of jobs, and each step here changes one
of these. So a step with a change makes a plan of its own, and the next plan goes on after it.
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
    """The steps that these choices need. `measures`: run times are learned."""

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

    def chances(self, view: View) -> Sequence[Change]:
        """Refused jobs that enter the present slot at their last chance. The limits of teams have
        been settled before: a job beyond them enters none.
        """
        if self.promises is None or not self.promises.chances or not view.cluster.judged:
            return ()
        from dlq_master.policy.partition.mid_slot import entries

        return entries(view, self.promises)

    def wake_s(self, view: View) -> float:
        """When a step has a change although nothing has happened (inf: never)."""
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
    """The decision of the next slot, if it is due; else verdicts on deadlines."""
    # These import numerical libraries, which a master without deadlines does not load.
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
    """The packing of jobs by their traffic, if it differs from the cluster's."""
    packing = None if rule is None else rule(cluster)
    known = cluster.packing
    return () if packing is known or packing == known else (Repack(packing, _LEARNED),)


def _measured(view: View, rules: TrialRules | None) -> Sequence[Change]:
    """The number of GPUs for trials, if that is due, and the jobs to try.

    Without trials, estimates come from other jobs of the family.
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
