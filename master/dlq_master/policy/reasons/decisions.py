"""What a policy decides for one view, each decision made once however many jobs are explained from
it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from dlq_master.model.order.lineup import Lineup
from dlq_master.model.view import View
from dlq_master.policy import pipeline
from dlq_master.policy.place.allocation.outcome import Outcome
from dlq_master.policy.policy import Policy
from dlq_master.policy.transit.guards import NONE


class Decisions:
    """Made when they are first asked for. They hold for the view they are made for: whoever keeps
    them drops them with the next plan."""

    def __init__(self, view: View, policy: Policy) -> None:
        self.view = view
        self.policy = policy

    @cached_property
    def now(self) -> Outcome:
        """Who starts, who leaves, and for whom GPUs are kept."""
        return pipeline.decide(self.view, self.policy)

    @cached_property
    def at_boundary(self) -> Outcome:
        """The same if every term ended now."""
        return pipeline.at_boundary(self.view, self.policy)

    @cached_property
    def unguarded(self) -> Outcome:
        """The same if every term ended now and nobody were protected."""
        guards = NONE._replace(margin=self.policy.guards.margin)
        return pipeline.at_boundary(self.view, replace(self.policy, guards=guards))

    @cached_property
    def order(self) -> Lineup:
        """Who stands where."""
        return pipeline.lineup(self.view, self.policy)
