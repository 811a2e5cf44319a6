"""The main reason of any number of waiting jobs, for lists: one walk for all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cached_property

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.jobs.naming import blocks
from dlq_master.model.resources import Shape
from dlq_master.model.traits import each_alone, words_of
from dlq_master.model.view import View
from dlq_master.model.why import Kind, ReasonCode
from dlq_master.policy.admit.any_that_fits import never
from dlq_master.policy.admit.submission import late
from dlq_master.policy.partition.quotas import Room
from dlq_master.policy.pipeline import decide
from dlq_master.policy.place.allocation.outcome import Outcome
from dlq_master.policy.policy import Policy
from dlq_master.policy.reasons.accounts import HeldByAccount, kinds_over_account
from dlq_master.policy.reasons.explain import (
    group_obstacle,
    head_of,
    hold_code,
    kept_for_queue,
    kept_from,
    over_room,
    shortages,
)


class ReasonSummary:
    """The first reason of `explain` for each job, at O(1) a job after the first of its shape.

    It holds for its view only, so its owner drops it with the next plan. `decided`: the outcome of
    the last plan, so that none is made here.
    """

    def __init__(self, view: View, policy: Policy, decided: Outcome | None = None) -> None:
        self._view = view
        self._policy = policy
        self._decided = decided
        self._never: dict[Shape, Kind | None] = {}
        self._short: dict[Shape, tuple[Kind, ...]] = {}

    def code(self, job: Job) -> ReasonCode | None:
        """The main reason why the job does not run; None while it holds GPUs or has ended."""
        main = next(self._kinds(job), None)
        return None if main is None else main.code

    def kinds(self, job: Job) -> tuple[Kind, ...]:
        """All of them, the main one first. Of the reasons that keep a job from free GPUs it has
        only the first, and not WAITING_FOR_BOUNDARY, which is no obstacle of its own.
        """
        return tuple(dict.fromkeys(self._kinds(job)))

    def _kinds(self, job: Job) -> Iterator[Kind]:
        if job.ended or job.live_attempt is not None:
            return
        held = hold_code(job) if job.state is JobState.HELD else None
        if held is not None:
            yield Kind(held)
        if job.blocked is not None or held is not None:
            yield from self._blocks(job, held)
            return
        if not self._view.cluster.nodes:
            yield Kind(ReasonCode.NO_NODES)
            return
        yield from self._of_nodes(job)

    def _blocks(self, job: Job, held: ReasonCode | None) -> Iterator[Kind]:
        found = [it.kind for it in blocks(job, self._view.now_s, lambda _: "")]
        if not found and job.blocked is not None:  # it has just come to pass
            found = [Kind(ReasonCode(job.blocked.value))]
        yield from (kind for kind in found if kind.code is not held)

    def _of_nodes(self, job: Job) -> Iterator[Kind]:
        shape = self._view.cluster.asked(job)
        hopeless = self._hopeless(shape)
        if hopeless is not None:
            yield hopeless
        elif job.state is JobState.PENDING:
            held_back = job.job_id in self._late
            yield Kind(ReasonCode.SUBMIT_LIMIT if held_back else ReasonCode.NOT_ADMITTED)
        elif self._view.pause_starts is not None:
            yield Kind(self._view.pause_starts)
            if self._view.pause_starts is not ReasonCode.MASTER_STARTING:
                yield from self._shortages(shape)
        elif job.job_id in self._outcome.chosen:
            yield Kind(ReasonCode.STARTS_NEXT)
        else:
            yield from self._of_line(job, shape)

    def _of_line(self, job: Job, shape: Shape) -> Iterator[Kind]:
        """It waits for GPUs that it may have, or for its turn."""
        if job.job_id in self._keeping:
            yield Kind(ReasonCode.KEPT_GPUS)
        short = [*self._over(job), *self._shortages(shape)]
        lacks = group_obstacle(self._view, self._policy, job, short=bool(short))
        short += [reason.kind for reason in lacks]
        yield from short
        before = [Kind(code) for code in self._before(job)]
        yield from before
        if not short and not before:
            yield Kind(self._behind(job))

    def _over(self, job: Job) -> Iterator[Kind]:
        if job.band in (Band.BORROW, Band.LIMIT):
            yield from kinds_over_account(self._held, self._policy, job)
        elif self._over_quota(job):
            yield Kind(ReasonCode.QUOTA)
        if over_room(job, self._outcome):
            yield Kind(ReasonCode.PROFILER_FULL)

    def _hopeless(self, asked: Shape) -> Kind | None:
        shape = self._view.cluster.alike(asked)
        if shape not in self._never:
            reason = never(self._view.cluster, self._policy.placement, shape)
            self._never[shape] = None if reason is None else reason.kind
        found = self._never[shape]
        if found is None or found.code is not ReasonCode.CONSTRAINT or asked is shape:
            return found
        return found._replace(subject=words_of(asked.traits or ""))

    def _shortages(self, asked: Shape) -> tuple[Kind, ...]:
        shape = self._view.cluster.alike(asked)
        if shape not in self._short:
            self._short[shape] = shortages(self._view.cluster, self._policy, shape)
        found = self._short[shape]
        if asked is shape or not found:
            return found
        return tuple([self._as_asked(kind, asked) for kind in found])

    def _as_asked(self, kind: Kind, asked: Shape) -> Kind:
        """With the sizes for which its user asked, where nodes cannot tell them from others."""
        if kind.code is not ReasonCode.CONSTRAINT:
            return kind
        traits, alike = asked.traits or "", self._view.cluster.alike
        for alone in each_alone(traits):
            if words_of(alike(asked._replace(traits=alone)).traits or "") == kind.subject:
                return kind._replace(subject=words_of(alone))
        return kind._replace(subject=words_of(traits))

    def _over_quota(self, job: Job) -> bool:
        room = self._room
        part = self._policy.partition.part_of(job.queue)
        return room is not None and not room.allows(part, job.request.real_gpus)

    def _before(self, job: Job) -> Iterator[ReasonCode]:
        if self._outcome.claims.get(job.job_id) is False:
            yield ReasonCode.WAITING_FOR_RELEASE
        if head_of(self._policy, job, self._outcome) is not None:
            yield ReasonCode.HEAD_OF_LINE

    def _behind(self, job: Job) -> ReasonCode:
        """Its GPUs are free: somebody stands before it."""
        if kept_from(job, self._outcome):
            return ReasonCode.KEPT_FOR_TRIALS
        if kept_for_queue(job, self._outcome):
            return ReasonCode.KEPT_FOR_QUEUE
        if self._keeping:
            return ReasonCode.KEPT_GPUS
        if self._reserved - {job.job_id}:
            return ReasonCode.RESERVED_FOR
        return ReasonCode.BEHIND_HIGHER_RANK

    @cached_property
    def _keeping(self) -> Collection[JobId]:
        """Jobs that lost a node, for which GPUs are kept."""
        if not self._view.cluster.keeping:
            return ()
        from dlq_master.policy.transit.kept_gpus import claims

        return {claim.job.job_id for claim in claims(self._view) if claim.parts}

    @cached_property
    def _held(self) -> HeldByAccount:
        return HeldByAccount(self._view.cluster, self._policy.quota_unit)

    @cached_property
    def _outcome(self) -> Outcome:
        if self._decided is None:
            return decide(self._view, self._policy)
        return self._decided

    @cached_property
    def _late(self) -> Collection[JobId]:
        rules = self._policy.profiling
        return () if rules is None else late(self._view, rules)

    @cached_property
    def _room(self) -> Room | None:
        return self._policy.partition.room(self._view.cluster)

    @cached_property
    def _reserved(self) -> frozenset[JobId]:
        return frozenset(job_id for job_id, reserved in self._outcome.claims.items() if reserved)
