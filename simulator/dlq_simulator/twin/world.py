"""The clock started from a live state: running jobs go on, and the same core decides about waiting
ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import ceil, floor, inf, log2

from dlq_master.model.attempts import live_resize
from dlq_master.model.attempts.attempt import Attempt, AttemptState
from dlq_master.model.attempts.attempt_steps import NodeLost, Running
from dlq_master.model.cluster import drive
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId, NodeId
from dlq_master.model.jobs.eligible import Block
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.jobs.job_steps import Eligible
from dlq_master.model.nodes.node import NodeFlag
from dlq_master.model.nodes.node_steps import FlagSet
from dlq_master.model.resources import Allocation
from dlq_master.model.transitions import StopCause
from dlq_master.policy.policy import Policy
from dlq_master.policy.transit.taking import Taking
from dlq_master.policy.trial.rules import PROFILE_S
from dlq_simulator.replay.clockwork import Engine
from dlq_simulator.replay.events import InstantKind
from dlq_simulator.settings import ReplaySettings
from dlq_simulator.workload import TraceJob
from dlq_simulator.world.clusters import ClusterSpec
from dlq_simulator.world.course import Course, Seconds
from dlq_simulator.world.knowledge import Knowledge
from dlq_simulator.world.speed import Speed

# All of a job's work in seconds on its requested GPUs; it has done a part of it, and is not over.
Work = Callable[[Job, float], float]
_LEAST_LEFT_S = 1.0
GRID_S = 4.0  # at least, if it is coarse
_LIVE = ClusterSpec(name="live", groups=())


class TwinWorld(Engine):
    """The future of a cluster without interference, until `until_s`. It owns `cluster` from now on.

    `work`: how long jobs run. `come`: jobs that do not exist yet, at their submission times;
    `newcomers`: other such jobs, without forecasts. Silent nodes are taken to answer again, and
    closed ones to stay closed. Jobs that wait for other jobs, or are held, never start. `coarse`:
    events within such a span are decided on together, since one decision costs as much for many
    events; 0: each by itself.
    """

    def __init__(
        self,
        cluster: Cluster,
        policy: Policy,
        now_s: float,
        work: Work,
        come: Sequence[Job] = (),
        newcomers: Sequence[Job] = (),
        *,
        coarse: float = 0.0,
    ) -> None:
        self._work = work
        self._come = {job.job_id: job for job in (*come, *newcomers)}
        self.starts: dict[JobId, Seconds] = {}  # the next start of the waiting jobs
        self.ends: dict[JobId, Seconds] = {}
        self.waiting = {job.job_id: None for job in cluster.jobs.values() if _will_wait(job)}
        self.waiting |= {job.job_id: None for job in come}
        there = [job for job in cluster.jobs.values() if not job.ended]
        self._due = [job.job_id for job in (*there, *come) if job.steps]
        self._over = False
        self._coarse = coarse
        settings = _settings(cluster, policy)
        cluster.resizes_live = False
        super().__init__(
            cluster,
            settings.policy,
            settings,
            _LIVE,
            _Courses(self._course),
            now_s,
            arrivals=[
                *_opens(cluster, now_s),
                *((job.submit_time_s, job.job_id) for job in self._come.values()),
            ],
            whole_seconds=False,
        )
        for job in cluster.jobs.values():
            if job.duration_estimate_s is not None:
                self.estimates.learned(job.job_id, job.duration_estimate_s)
            elif job.basis.unmeasured is not None:
                self.estimates.given_up(job.job_id)
        for attempt in list(cluster.attempts.values()):
            self._take_up(attempt)

    @property
    def now_s(self) -> Seconds:
        """The present instant of the simulation."""
        return self._now_s

    def run(self, until_s: float, enough: Callable[[], bool] = lambda: False) -> Seconds:
        """Run until all jobs have started, `until_s` is reached, or `enough` says so (asked every
        turn).

        Returns the instant up to which starts are complete; inf: no more will ever happen.
        """
        self._turn(self.begin_s)
        while self.waiting:
            at_s = self._next_instant()
            if self._over:
                return inf
            if at_s > until_s or enough():
                return min(at_s, until_s)
            self._turn(at_s)
        return inf

    def run_out(self, job_id: JobId, until_s: float, enough: Callable[[], bool]) -> Seconds | None:
        """Go on until this job has ended, and return that instant; None: unknown."""
        while job_id not in self.ends and not enough():
            at_s = self._next_instant()
            if self._over or at_s > until_s:
                break
            self._turn(at_s)
        return self.ends.get(job_id)

    def deadline_ends(self) -> dict[JobId, Seconds]:
        """When jobs with deadlines end. Jobs that have not ended are taken to run on
        undisturbed.
        """
        return {job_id: self.ends.get(job_id, self._left_alone_s(job_id)) for job_id in self._due}

    def _left_alone_s(self, job_id: JobId) -> Seconds:
        course = self.courses.get(job_id)  # one that has not been looked at is no course yet
        return inf if course is None or not course.attempt else course.finish_s

    def _next_instant(self) -> Seconds:
        at_s = super()._next_instant()
        ahead_s = at_s - self.begin_s
        grid_s = max(GRID_S, self._coarse * ahead_s)
        if not self._coarse or self._over or ahead_s <= 0.0:
            return at_s
        grid_s = 2.0 ** floor(log2(grid_s))
        later_s = self.begin_s + ceil(ahead_s / grid_s) * grid_s
        return later_s if self._wake_s is None else max(at_s, min(later_s, self._wake_s))

    def _arrive(self, job_id: JobId) -> None:
        job = self._come.get(job_id)
        if job is not None:
            drive.submit(self.cluster, job)
            return
        job = self.cluster.jobs[job_id]
        drive.step_job(self.cluster, job_id, Eligible(depends=job.depends), self._now_s)

    def _start(self, job_id: JobId, number: int, allocation: Allocation, now_s: Seconds) -> None:
        if job_id in self.waiting:
            del self.waiting[job_id]
            self.starts[job_id] = now_s
        super()._start(job_id, number, allocation, now_s)

    def _finish(self, job_id: JobId, number: int, now_s: Seconds) -> None:
        super()._finish(job_id, number, now_s)
        self.ends[job_id] = now_s

    def _refuse(self, job_id: JobId, why: str) -> None:
        super()._refuse(job_id, why)
        self.waiting.pop(job_id, None)

    def _give_up(self) -> bool:
        self._over = True
        return True

    def _advance(self) -> None:
        """No progress is shown."""

    def _course(self, job_id: JobId) -> Course:
        """A job's course so far, in the parts that its rest needs."""
        job = self.cluster.jobs[job_id]
        attempt = self.cluster.live_attempt(job)
        row, done_s = _row(job), job.worked_s
        if attempt is not None and not job.reduced and not attempt.is_out:
            ran_s = max(0.0, self._until_s(attempt) - self._progress_s(job, attempt))
            allocation = attempt.lease.allocation
            done_s += ran_s * self.rates.rate(row, allocation, allocation.width)
        work_s = max(self._work(job, done_s), done_s + _LEAST_LEFT_S)
        course = Course(replace(row, duration_s=work_s))
        course.done_s = done_s
        if attempt is not None and job.trials:
            course.trial_start_s = attempt.assigned_time_s
        course.begun = job.goes_on(job.attempts if attempt is not None else job.attempts + 1)
        return course

    def _until_s(self, attempt: Attempt) -> float:
        """Until when an attempt makes, or made, progress."""
        if attempt.state is AttemptState.PAUSING:
            return min(self.begin_s, self._leaves_s(attempt) - self.settings.save_s)
        return self.begin_s

    def _progress_s(self, job: Job, attempt: Attempt) -> float:
        """Since when it makes progress."""
        began_s = attempt.started_time_s
        if began_s is None:
            began_s = self.begin_s
        return began_s + (self.settings.resume_s if job.goes_on(attempt.key.number) else 0.0)

    def _leaves_s(self, attempt: Attempt) -> float:
        """When a stopped attempt will have saved."""
        if attempt.stop_cause is StopCause.PREEMPT:
            return max(self.begin_s, attempt.lease.term_end_s)
        told_s = attempt.notice_time_s
        return max(
            self.begin_s, (self.begin_s if told_s is None else told_s) + self.settings.save_s
        )

    def _take_up(self, attempt: Attempt) -> None:
        """Schedule the next events of an attempt that holds GPUs."""
        key = attempt.key
        if attempt.resize is not None and attempt.stop_cause is None:  # it is over before long
            attempt = live_resize.settled(attempt)._replace(resize=None)
            self.cluster.put_attempt(attempt)
        if attempt.state is AttemptState.UNKNOWN:
            known = attempt.known_before_silence or AttemptState.RUNNING
            attempt = attempt._replace(state=known, known_before_silence=None)
            self.cluster.put_attempt(attempt)
        if attempt.suspension is not None and attempt.stop_cause is None:
            if attempt.is_out:
                return  # it comes back as soon as its GPUs are free
            attempt = attempt._replace(state=AttemptState.RUNNING, suspension=None)
            self.cluster.put_attempt(attempt)
        if attempt.state is AttemptState.PAUSING:
            course = self.courses[key.job_id]
            course.begun = True
            course.stopped_s = course.progress_s = course.settled_s = self._until_s(attempt)
            self.agenda.foresee(self._leaves_s(attempt), InstantKind.LEAVE, *key)
            return
        if attempt.state is not AttemptState.RUNNING:
            drive.step_attempt(self.cluster, key, Running(), self.begin_s)
        self._go_on(key)

    def _go_on(self, key: AttemptKey) -> None:
        job, attempt = self.cluster.jobs[key.job_id], self.cluster.attempts[key]
        course = self.courses[key.job_id]
        allocation = attempt.lease.allocation
        if job.reduced:
            began_s = min(self.begin_s, attempt.started_time_s or self.begin_s)
            over_s = self.estimates.tried(course, key.number, began_s, allocation.width)
            over_s = max(self.begin_s, over_s)
            self.agenda.foresee(over_s, InstantKind.PROFILE, *key)
            return
        resume_s = max(0.0, self._progress_s(job, attempt) - self.begin_s)
        rate = self.rates.rate(course.row, allocation, allocation.width)
        course.begun = True
        finish_s = course.start(key.number, self.begin_s, resume_s, rate, allocation.width)
        self.agenda.foresee(finish_s, InstantKind.FINISH, *key)
        profiled_s = self.estimates.taken_up(key.job_id, course)
        if profiled_s is not None:
            self.agenda.foresee(profiled_s, InstantKind.PROFILE, *key)


class _Courses(dict[JobId, Course]):
    """Courses made on demand: most of a long queue is never read."""

    def __init__(self, make: Callable[[JobId], Course]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, job_id: JobId) -> Course:
        course = self[job_id] = self._make(job_id)
        return course


def _settings(cluster: Cluster, policy: Policy) -> ReplaySettings:
    """The world as the plans of the master assume it."""
    terms = cluster.terms
    if policy.taking is Taking.NEVER and policy.resizing is not Taking.BOUNDARY:
        # As in a replay: a job that is never preempted starts and ends alike without a grid.
        policy = replace(policy, grid=False)
    return ReplaySettings(
        policy=policy,
        free=False,
        terms=terms,
        save_s=terms.save_lead_s,
        resume_s=terms.resume_s,
        speed=Speed(),
        knowledge=_knowledge(policy),
    )


def _knowledge(policy: Policy) -> Knowledge:
    """Knowledge with which measurements find the drawn values."""
    profile_s = PROFILE_S if policy.profile_s is None else policy.profile_s
    trials = policy.profiling is not None
    return Knowledge(know=policy.know, profile_s=profile_s, noise=0.0, trials=trials)


def _opens_s(job: Job) -> float | None:
    """The begin time for which it waits; None: it waits for GPUs, or for something else."""
    if job.ended or job.hold is not None or job.blocked is None:
        return None
    return {Block.BEGIN_TIME: job.begin_time_s, Block.BACKOFF: job.retry_time_s}.get(job.blocked)


def _opens(cluster: Cluster, now_s: float) -> Iterator[tuple[Seconds, JobId]]:
    for job in cluster.jobs.values():
        opens_s = _opens_s(job)
        if opens_s is not None:
            yield max(now_s, opens_s), job.job_id


def _will_wait(job: Job) -> bool:
    """Whether it waits for GPUs, or will from some instant on."""
    pending = job.state is JobState.PENDING and job.blocked is None
    return job.waiting or pending or _opens_s(job) is not None


def _row(job: Job) -> TraceJob:
    """The job as a row of a trace, without its run time."""
    profile = job.profile
    return TraceJob(
        job_id=str(job.job_id),
        submit_time_s=job.submit_time_s,
        num_gpus=job.request.gpus,
        duration_s=0.0,
        user=job.user,
        checkpoint=job.keeps_work,
        skew=None if profile is None else profile.skew,
        rho=None if profile is None else profile.rho,
        gpu_type="|".join(job.request.gpu_types or ()) or None,
    )


def lose(cluster: Cluster, node_ids: Iterable[NodeId], now_s: float) -> None:
    """These nodes die: their jobs wait again without their unsaved work."""
    gone = set(node_ids)
    for key, attempt in list(cluster.attempts.items()):
        if attempt.live and gone & set(attempt.lease.allocation.node_ids):
            drive.step_attempt(cluster, key, NodeLost(), now_s)
    close(cluster, gone, now_s)


def close(cluster: Cluster, node_ids: Iterable[NodeId], now_s: float) -> None:
    """These nodes take no more work; unknown nodes are ignored."""
    for node_id in node_ids:
        if node_id in cluster.nodes:
            drive.step_node(cluster, node_id, FlagSet(flag=NodeFlag.CORDONED), now_s)
