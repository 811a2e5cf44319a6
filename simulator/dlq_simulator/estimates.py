"""Tells the scheduler what `Knowledge` says, in the time that the work takes where it is done."""

from __future__ import annotations

from dlq_master.model import drive
from dlq_master.model.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.job_steps import Updated
from dlq_master.policy.policy import Know
from dlq_simulator.course import Course, Seconds
from dlq_simulator.knowledge import Knowledge
from dlq_simulator.speed import Speed
from dlq_simulator.workload import TraceJob


class Estimates:
    """What the policy has been told of each job's work, in seconds on the reference."""

    __slots__ = ("_cluster", "_knowledge", "_profiles", "_told_s")

    def __init__(self, knowledge: Knowledge, cluster: Cluster) -> None:
        self._knowledge = knowledge
        self._cluster = cluster
        self._profiles = knowledge.know is Know.PROFILED
        self._told_s: dict[JobId, float] = {}

    def at_submit(self, job_id: JobId, row: TraceJob) -> float | None:
        """The run time that a new job says."""
        told_s = self._knowledge.at_submit(row)
        if told_s is not None and not self._profiles:
            self._told_s[job_id] = told_s
        return told_s

    def speeds(self, row: TraceJob, sizes: tuple[int, ...], speed: Speed) -> tuple[float, ...]:
        """How fast it runs at each of its sizes, for a policy that knows anything of it."""
        if self._knowledge.know is Know.UNKNOWN:
            return ()
        return tuple(speed.rate(row, size) for size in sizes)

    def started(self, job_id: JobId, course: Course, now_s: Seconds) -> Seconds | None:
        """It has got GPUs; returns when it will have been profiled, if that is what it needs."""
        if job_id in self._told_s:
            if course.rate != 1 or course.slowed_s:
                self._tell(job_id, course, now_s)
            return None
        if not self._profiles:
            return None
        left_s = self._knowledge.profile_s - course.done_s - course.slowed_s
        return course.progress_s + max(0, left_s)

    def profiled(self, job_id: JobId, course: Course, now_s: Seconds) -> None:
        """Its trial is over."""
        self._told_s[job_id] = self._knowledge.after_trial(course.row)
        self._tell(job_id, course, now_s)

    def _tell(self, job_id: JobId, course: Course, now_s: Seconds) -> None:
        """The policy counts executed seconds against an estimate: at another speed than 1 these are
        not the seconds of the work."""
        estimate_s = self._told_s[job_id]
        if course.rate != 1 or course.slowed_s:
            job = self._cluster.jobs[job_id]
            speed = job.speed_on(course.gpus)  # that the policy reckons with
            made_s = course.done_s + max(0, now_s - course.progress_s) * course.rate
            left_s = max(0.0, estimate_s - made_s) / course.rate
            estimate_s = job.worked_s + (now_s - course.placed_s + left_s) * speed
        told = Updated(values=(("duration_estimate_s", estimate_s),), changes="run estimate")
        drive.step_job(self._cluster, job_id, told, now_s)
