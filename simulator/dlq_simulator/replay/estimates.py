"""Gives the scheduler the run times of `Knowledge`, converted to the job's GPUs."""

from __future__ import annotations

from dlq_master.model.attempts.attempt_steps import Measured
from dlq_master.model.cluster import drive
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job_steps import Estimated
from dlq_master.policy.partition.profiling import nodes_of
from dlq_master.policy.policy import Know
from dlq_simulator.workload import TraceJob
from dlq_simulator.world.course import Course, Seconds
from dlq_simulator.world.knowledge import Knowledge
from dlq_simulator.world.world import WorkRates


class Estimates:
    """The policy's knowledge of each job's work, in seconds on the reference."""

    __slots__ = ("_cluster", "_given_up", "_knowledge", "_named", "_profiles", "_told_s")

    def __init__(self, knowledge: Knowledge, cluster: Cluster) -> None:
        self._knowledge = knowledge
        self._cluster = cluster
        self._profiles = knowledge.know is Know.PROFILED
        self._told_s: dict[JobId, float] = {}
        # The speed of the type that each names alone, else 1; empty where all GPUs are alike.
        self._named: dict[JobId, Seconds] = {}
        self._given_up: set[JobId] = set()

    def at_submit(
        self, job_id: JobId, row: TraceJob, named: Seconds, own: Seconds = 1
    ) -> float | None:
        """The run time that a new job names: on the reference, or on the one type that it asks for.

        `named`: the speed of that type. `own`: the job's pace on its own GPUs.
        """
        told_s = self._knowledge.at_submit(row)
        if told_s is None or self._profiles:
            return told_s
        self._told_s[job_id] = told_s
        if self._cluster.speeds.declared:
            self._named[job_id] = named
        return told_s / named / own

    def speeds(
        self, row: TraceJob, sizes: tuple[int, ...], rates: WorkRates, *, by_goodput: bool = False
    ) -> tuple[float, ...]:
        """Its speed at each of its sizes, 1 on its own GPUs.

        Only for a policy that knows run times, or these speeds alone (`by_goodput`).
        """
        if self._knowledge.know is Know.UNKNOWN and not by_goodput:
            return ()
        own = rates.alone(row, row.num_gpus)
        return tuple(rates.alone(row, size) / own for size in sizes)

    def started(self, job_id: JobId, course: Course, now_s: Seconds) -> Seconds | None:
        """The job has got GPUs; return when its measurement will be done, if it needs one."""
        if job_id in self._told_s and (course.rate != 1 or course.slowed_s):
            self._tell(job_id, course, now_s)
        return self.taken_up(job_id, course)

    def taken_up(self, job_id: JobId, course: Course) -> Seconds | None:
        """As `started`, for a job that ran before: the policy was told at its start."""
        if (
            job_id in self._told_s
            or not self._profiles
            or job_id in self._given_up
            or (self._knowledge.trials and course.trial_start_s is None)
        ):
            return None
        left_s = self._knowledge.profile_s - course.done_s - course.slowed_s
        return course.progress_s + max(0, left_s)

    def stopped(self, job_id: JobId, course: Course, now_s: Seconds) -> None:
        """The job has left its GPUs.

        The saved work is in seconds of the reference, the rest in seconds of its run time.
        """
        named, job = self._named.get(job_id), self._cluster.jobs[job_id]
        if named is None:
            return
        left_s = max(0.0, self._told_s[job_id] - course.done_s) / named
        told = Estimated(estimate_s=job.worked_s + left_s)
        drive.step_job(self._cluster, job_id, told, now_s)

    def tried(self, course: Course, number: int, now_s: Seconds, gpus: int) -> Seconds:
        """The job has got GPUs only to be measured; return when that will be done."""
        return course.try_out(number, now_s, self._knowledge.profile_s, gpus)

    def measured(self, job_id: JobId, course: Course, number: int, now_s: Seconds) -> None:
        """A trial that did none of its work is over."""
        job = self._cluster.jobs[job_id]
        one_s, two_s = self._knowledge.paces(course.row, max(1, nodes_of(self._cluster, job)))
        event = Measured(work_s=two_s if job.measured_s else one_s)
        drive.step_attempt(self._cluster, AttemptKey(job_id, number), event, now_s)
        course.measured(now_s)

    def learned(self, job_id: JobId, estimate_s: float) -> None:
        """The policy has found out by itself how long the job runs."""
        self._told_s[job_id] = estimate_s

    def given_up(self, job_id: JobId) -> None:
        """Its run time will stay unknown."""
        self._given_up.add(job_id)

    def profiled(self, job_id: JobId, course: Course, now_s: Seconds) -> None:
        """Its trial is over."""
        self._told_s[job_id] = self._knowledge.after_trial(course.row)
        self._tell(job_id, course, now_s)

    def _tell(self, job_id: JobId, course: Course, now_s: Seconds) -> None:
        """Tell the policy an estimate.

        The policy compares executed seconds with an estimate; at a speed other than 1 these are not
        seconds of work.
        """
        estimate_s = self._told_s[job_id]
        if course.rate != 1 or course.slowed_s:
            job = self._cluster.jobs[job_id]
            speed = job.speed_on(course.gpus)  # that the policy reckons with
            if (attempt := self._cluster.live_attempt(job)) is not None:
                speed *= attempt.paced(job.request)
            made_s = course.done_s + max(0, now_s - course.progress_s) * course.rate
            left_s = max(0.0, estimate_s - made_s) / course.rate
            estimate_s = job.worked_s + (now_s - course.placed_s + left_s) * speed
        told = Estimated(estimate_s=estimate_s)
        drive.step_job(self._cluster, job_id, told, now_s)
