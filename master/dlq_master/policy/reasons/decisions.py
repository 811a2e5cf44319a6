"""The decisions of a policy for one view, each made once however many jobs are explained from
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
    """Made when they are first asked for. They hold for their view only, so their owner drops them
    with the next plan.
    """

    def __init__(self, view: View, policy: Policy) -> None:
        self.view = view
        self.policy = policy

    @cached_property
    def now(self) -> Outcome:
        """The jobs that start, the jobs that leave, and the jobs for which GPUs are kept."""
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
