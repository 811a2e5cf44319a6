"""Jobs come, are tried, measured, run, fail and are held in any order; after every decision all is
sound.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from dlq_master.model.attempts import attempt_steps
from dlq_master.model.attempts.attempt import Attempt, AttemptState
from dlq_master.model.cluster import drive
from dlq_master.model.ids import JobId
from dlq_master.model.jobs import job_steps
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import EndReason, HoldKind, Job
from dlq_master.model.jobs.reward import strict
from dlq_master.model.resources import Request
from dlq_master.model.view import View
from dlq_master.model.why import ReasonCode
from dlq_master.policy.partition.profiling import room
from dlq_master.policy.reasons.explain import explain
from dlq_master.policy.reasons.summary import ReasonSummary
from support.builders import World, a_job
from support.extent import times
from support.validate import validate

ENDS = (
    attempt_steps.Succeeded(),
    attempt_steps.NodeLost(),
    attempt_steps.Failed(reason=EndReason.USER_ERROR, exit_code=1),
)
LEAVES = (attempt_steps.Preempted(), attempt_steps.PreemptedLost(), attempt_steps.Succeeded())


class Trials(RuleBasedStateMachine):
    """What may happen to jobs that have to be profiled."""

    def __init__(self) -> None:
        super().__init__()
        self.next_id = 1

    @initialize(
        nodes=st.integers(1, 9), limit=st.sampled_from(["off", "8", "24"]), floor=st.integers(0, 3)
    )
    def a_cluster(self, nodes: int, limit: str, floor: int) -> None:
        words = {"know": "profiled", "submit_gpus": limit, "profile_floor": str(floor)}
        self.world = World("chronus", nodes, None, **words)

    @rule(
        gpus=st.sampled_from([1, 1, 2, 4, 8, 12, 16, 24, 32]),
        parts=st.sampled_from([None, None, None, 4]),
        user=st.sampled_from(["ada", "bob"]),
        family=st.sampled_from(["", "", "ada/resnet"]),
        estimate_s=st.sampled_from([None, None, None, 700.0]),
        deadline_s=st.sampled_from([None, 3000.0, 9000.0]),
    )
    def a_submission(
        self,
        gpus: int,
        parts: int | None,
        user: str,
        family: str,
        estimate_s: float | None,
        deadline_s: float | None,
    ) -> None:
        nodes = parts if parts and gpus % parts == 0 else None
        job = a_job(
            self.next_id,
            request=Request(gpus=gpus, nodes=nodes),
            user=user,
            family=family,
            duration_estimate_s=estimate_s,
            steps=() if deadline_s is None else strict(deadline_s),
        )
        self.world.submit(job)
        self.next_id += 1
        self.decided()

    @rule(pick=st.integers(0, 99), work_s=st.sampled_from([200.0, 1500.0, 5000.0]))
    def a_trial_is_over(self, pick: int, work_s: float) -> None:
        tried = [it for it in self.attempts(AttemptState.RUNNING) if self.job_of(it).trials]
        if not tried:
            return
        key = tried[pick % len(tried)].key
        if self.world.job(key.job_id).reduced:
            event = attempt_steps.Measured(work_s=work_s)
            drive.step_attempt(self.world.cluster, key, event, self.world.now_s)
        else:
            known = job_steps.Estimated(estimate_s=work_s)
            drive.step_job(self.world.cluster, key.job_id, known, self.world.now_s)
        self.decided()

    @rule(pick=st.integers(0, 99), how=st.integers(0, 2), leaving=st.booleans())
    def an_end(self, pick: int, how: int, leaving: bool) -> None:
        state = AttemptState.PAUSING if leaving else AttemptState.RUNNING
        found = self.attempts(state)
        if found:
            attempt = found[pick % len(found)]
            event = (LEAVES if leaving else ENDS)[how]
            drive.step_attempt(self.world.cluster, attempt.key, event, self.world.now_s)
            self.decided()

    @rule(pick=st.integers(0, 99), kind=st.sampled_from([HoldKind.USER, HoldKind.PAUSED, None]))
    def a_hold_or_its_end(self, pick: int, kind: HoldKind | None) -> None:
        event = job_steps.Released() if kind is None else job_steps.Held(kind=kind)
        jobs = self.world.cluster.jobs
        ids = sorted(i for i, job in jobs.items() if (job.state, type(event)) in job_steps.TABLE)
        if ids:
            drive.step_job(self.world.cluster, ids[pick % len(ids)], event, self.world.now_s)
            self.decided()

    @rule(seconds=st.sampled_from([1.0, 40.0, 271.0, 1200.0, 3600.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now_s += seconds
        self.decided()

    @rule()
    def the_policy_wakes_up(self) -> None:
        wake_s = self.world.wake_at_s
        if wake_s is not None and wake_s > self.world.now_s:
            self.world.now_s = wake_s
        self.decided()
        after_s = self.world.wake_at_s
        assert after_s is None or after_s > self.world.now_s, "it would wake again at once"

    # --- what must hold -------------------------------------------------------------------------

    def decided(self) -> None:
        """Settle, compare what people are told with what is planned, then carry out."""
        world = self.world
        world.settle_moves()
        validate(world.cluster)
        self.explained()
        world.decide()  # it validates
        self.trials_are_within_their_room()
        self.nobody_is_forgotten()

    def explained(self) -> None:
        world = self.world
        view = View(world.cluster, world.now_s)
        starts = {getattr(change, "job_id", None) for change in world.plan().changes}
        glance = ReasonSummary(view, world.policy)
        for job_id, job in list(world.cluster.jobs.items())[-6:]:
            reasons = explain(view, world.policy, job_id)
            assert bool(reasons) == (job.live_attempt is None or job.ended), job
            codes = {reason.code for reason in reasons}
            assert (ReasonCode.STARTS_NEXT in codes) == (job_id in starts), (job, reasons)
            main = None if job.ended or not reasons else reasons[0].code
            assert glance.code(job) is main, (job, reasons)

    def trials_are_within_their_room(self) -> None:
        rules = self.world.policy.profiling
        assert rules is not None
        space = room(self.world.cluster, rules)
        trials = [it for it in self.world.cluster.attempts.values() if self.job_of(it).trials]
        widths = [it.lease.allocation.width for it in trials]
        assert space.held == sum(widths)
        if any(it.assigned_time_s == self.world.now_s for it in trials):
            assert space.held <= space.gpus or len(trials) == 1
        for attempt in trials:
            job = self.job_of(attempt)
            assert attempt.lease.allocation.width == job.trials[0]
            nodes = [slot.mask.bit_count() for slot in attempt.lease.allocation.slots]
            assert not job.reduced or nodes in ([job.trials[0]], [job.trials[0] // 2] * 2)

    def nobody_is_forgotten(self) -> None:
        """A waiting job has an estimate, is on trial, or names why no trial could measure it."""
        for job in self.world.cluster.jobs.values():
            if job.waiting:
                estimated = job.duration_estimate_s is not None
                unmeasurable = job.basis.unmeasured is not None
                assert estimated or unmeasurable or job.band is Band.PROFILE, job
                assert not (unmeasurable and job.band is Band.PROFILE), job

    def attempts(self, state: AttemptState) -> list[Attempt]:
        attempts = self.world.cluster.attempts
        return [attempts[key] for key in sorted(attempts) if attempts[key].state is state]

    def job_of(self, attempt: Attempt) -> Job:
        return self.world.cluster.jobs[JobId(attempt.key.job_id)]


TestTrials = Trials.TestCase
TestTrials.settings = settings(
    max_examples=times(15, max(40, settings().max_examples // 5)),
    stateful_step_count=30,
    deadline=None,
)
