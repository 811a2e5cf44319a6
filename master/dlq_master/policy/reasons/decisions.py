"""The decisions of a policy for one view, each made once, and their guards and preemptions."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from dlq_master.model.jobs.job import Job
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.view import View
from dlq_master.model.why import BLOCKERS_NAMED, Reason, ReasonCode
from dlq_master.policy import pipeline
from dlq_master.policy.place.allocation.outcome import Outcome
from dlq_master.policy.policy import Policy
from dlq_master.policy.transit.guards import NONE, Guards, protected


class BoundaryDecisions:
    """The decisions if every term ended now, with guards and without. Each is made at its first
    use, and costs a walk over all jobs.
    """

    def __init__(self, view: View, policy: Policy) -> None:
        self.view = view
        self.policy = policy

    @cached_property
    def guarded(self) -> Outcome:
        """The decision with guards."""
        return pipeline.at_boundary(self.view, self.policy)

    @cached_property
    def unguarded(self) -> Outcome:
        """The decision without guards."""
        guards = NONE._replace(margin=self.policy.guards.margin)
        return pipeline.at_boundary(self.view, replace(self.policy, guards=guards))


class Decisions:
    """The decisions of one view, valid until the next plan. `last`: the outcome of the last plan;
    None: it is made at its first use. `boundaries`: perhaps of an earlier view.
    """

    def __init__(
        self,
        view: View,
        policy: Policy,
        last: Outcome | None = None,
        boundaries: BoundaryDecisions | None = None,
    ) -> None:
        self.view = view
        self.policy = policy
        self.boundaries = boundaries or BoundaryDecisions(view, policy)
        self._last = last

    @cached_property
    def now(self) -> Outcome:
        """The jobs that start, the jobs that leave, and the jobs for which GPUs are kept."""
        return pipeline.decide(self.view, self.policy) if self._last is None else self._last

    @cached_property
    def order(self) -> Lineup:
        """Who stands where."""
        return pipeline.lineup(self.view, self.policy)


def taken_off(job: Job) -> list[Reason]:
    """It waits since another took its GPUs."""
    taken = job.taken
    if taken is None or taken.lost_s is None or taken.time_s < (job.start_time_s or 0.0):
        return []
    return [Reason(ReasonCode.PREEMPTED, "seconds", have=taken.lost_s, blocking_jobs=(taken.by,))]


def shielded(decisions: Decisions, job: Job) -> list[Reason]:
    """The jobs that would leave for it at the next boundary, or at once, without guards. Costs one
    more walk for all who ask.
    """
    guards = decisions.policy.guards
    if guards.most is None and not guards.min_run:
        return []
    cluster = decisions.view.cluster
    by_s = decisions.policy.transit.judged_s(decisions.view)
    safe = protected(cluster, guards, cluster.attempts, by_s)
    if not safe:
        return []
    holders = [
        key.job_id
        for key, winner in sorted(decisions.boundaries.unguarded.outranked.items())
        if winner == job.job_id and key in safe
    ]
    if not holders:
        return []
    gpus, named = job.request.gpus, tuple(holders[:BLOCKERS_NAMED])
    return [Reason(ReasonCode.PROTECTED, "gpus", gpus, None, named, _rules(guards))]


def _rules(guards: Guards) -> str:
    """`a job runs for at least 2 times what its pause and resume cost, and is preempted 20 times at
    most`.
    """
    told = []
    if guards.min_run:
        told.append(f"runs for at least {guards.min_run:g} times what its pause and resume cost")
    if guards.most is not None:
        told.append(f"is preempted {guards.most} times at most")
    return f"a job {', and '.join(told)}"
