"""The main reason of any number of waiting jobs, for lists: one walk for all of them."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

from dlq_master.model.ids import JobId
from dlq_master.model.job import Job, JobState
from dlq_master.model.lane import Lane
from dlq_master.model.resources import Shape
from dlq_master.model.view import View
from dlq_master.model.why import ReasonCode
from dlq_master.policy import pipeline
from dlq_master.policy.admit.any_that_fits import never
from dlq_master.policy.admit.submission import late
from dlq_master.policy.explain import (
    head_of,
    hold_code,
    kept_from,
    over_room,
    shortage_code,
)
from dlq_master.policy.partition.quotas import Room
from dlq_master.policy.policy import Policy
from dlq_master.policy.walk.outcome import Outcome


class Glance:
    """What `explain` would say first of each job, at O(1) a job after the first of its shape.

    It holds for the view it was made for: whoever keeps one drops it with the next plan.
    """

    def __init__(self, view: View, policy: Policy) -> None:
        self._view = view
        self._policy = policy
        self._never: dict[Shape, ReasonCode | None] = {}
        self._short: dict[Shape, ReasonCode | None] = {}

    def code(self, job: Job) -> ReasonCode | None:
        """The main reason why the job does not run; None while it holds GPUs or has ended."""
        if job.ended or job.live_attempt is not None:
            return None
        if job.state is JobState.HELD:
            return hold_code(job)
        if job.blocked is not None:
            return ReasonCode(job.blocked.value)
        if not self._view.cluster.nodes:
            return ReasonCode.NO_NODES
        shape = self._view.cluster.shape(job)
        hopeless = self._hopeless(shape)
        if hopeless is not None:
            return hopeless
        if job.state is JobState.PENDING:
            held_back = job.job_id in self._late
            return ReasonCode.SUBMIT_LIMIT if held_back else ReasonCode.NOT_ADMITTED
        if self._view.pause_starts is not None:
            return self._view.pause_starts
        if job.job_id in self._outcome.chosen:
            return ReasonCode.STARTS_NEXT
        if job.lane is Lane.LIMIT:
            return ReasonCode.TEAM_LIMIT
        if self._over_quota(job):
            return ReasonCode.QUOTA
        if over_room(job, self._outcome):
            return ReasonCode.PROFILER_FULL
        return self._shortage(shape) or self._behind(job)

    def _hopeless(self, shape: Shape) -> ReasonCode | None:
        if shape not in self._never:
            reason = never(self._view.cluster, self._policy.placement, shape)
            self._never[shape] = None if reason is None else reason.code
        return self._never[shape]

    def _shortage(self, shape: Shape) -> ReasonCode | None:
        if shape not in self._short:
            self._short[shape] = shortage_code(self._view.cluster, self._policy, shape)
        return self._short[shape]

    def _over_quota(self, job: Job) -> bool:
        if job.lane is Lane.BORROW:
            return True
        room = self._room
        part = self._policy.part_of(job.queue)
        return room is not None and not room.allows(part, job.request.gpus)

    def _behind(self, job: Job) -> ReasonCode:
        """Its GPUs are free: somebody stands before it."""
        if self._outcome.claims.get(job.job_id) is False:
            return ReasonCode.WAITING_FOR_RELEASE
        if head_of(self._policy, job, self._outcome) is not None:
            return ReasonCode.HEAD_OF_LINE
        if kept_from(job, self._outcome):
            return ReasonCode.KEPT_FOR_TRIALS
        if self._reserved - {job.job_id}:
            return ReasonCode.RESERVED_FOR
        return ReasonCode.BEHIND_HIGHER_RANK

    @cached_property
    def _outcome(self) -> Outcome:
        return pipeline.decide(self._view, self._policy)

    @cached_property
    def _late(self) -> Collection[JobId]:
        rules = self._policy.profiling
        return () if rules is None else late(self._view, rules)

    @cached_property
    def _room(self) -> Room | None:
        quotas = self._policy.quotas
        return None if quotas is None else quotas.room(self._view.cluster)

    @cached_property
    def _reserved(self) -> frozenset[JobId]:
        return frozenset(job_id for job_id, reserved in self._outcome.claims.items() if reserved)
