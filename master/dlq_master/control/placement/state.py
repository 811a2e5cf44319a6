"""The loop's state of plans: the chosen policy, the last plan, and its faults. Only the choice is
stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from dlq_master.control.placement.offloaded import Offloaded
from dlq_master.model.usage.shares import Shares
from dlq_master.model.why import ReasonCode
from dlq_master.policy.place.allocation.outcome import Outcome
from dlq_master.policy.reasons.decisions import BoundaryDecisions, Decisions
from dlq_master.policy.reasons.summary import ReasonSummary
from dlq_master.store.tables.chosen_policy import Chosen


class PlanFault(NamedTuple):
    """Plans have failed `times` times in a row, in the same place, since `since_s`."""

    where: str  # the exception and its place: tells faults apart
    words: str
    since_s: float
    times: int
    retry_s: float


@dataclass(slots=True)
class PlacementState:
    """`last`: the outcome of the last plan. `decisions` and `summary`: the policy's present
    decisions, and the reasons of waiting jobs. They are worked out when a reader first asks, and
    dropped at the next change. `boundaries`: the decisions for the end of all terms. In a large
    cluster they outlive changes for some seconds. `looked`: the reasons of the last second's look
    at waiting jobs.
    """

    chosen: Chosen
    last: Outcome | None = None
    decisions: Decisions | None = None
    boundaries: BoundaryDecisions | None = None
    summary: ReasonSummary | None = None
    looked: ReasonSummary | None = None
    nothing_placed: ReasonCode | None = None  # why the last plan could place nothing new
    offloaded: Offloaded = field(default_factory=Offloaded)  # plans made by the planning process
    fault: PlanFault | None = None
    kept_shares: Shares | None = None  # usage, while the policy counts no shares

    def forget_decisions(self) -> None:
        """Drop the answers for readers: the cluster has changed, or is about to."""
        self.decisions = self.summary = None
