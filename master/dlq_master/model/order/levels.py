"""When jobs change their level: their service reaches its threshold, or they have starved."""

from __future__ import annotations

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.order.order import Ordering
from dlq_master.model.timers import Timers


def held_gpus(job: Job, attempt: Attempt) -> int:
    """How many GPUs the attempt of this job holds. For a job that is not elastic these are as many
    as it asked or, during a trial, those of its trial.
    """
    request = job.request
    return attempt.lease.allocation.width if request.sizes else job.gpus_now


class LevelTimers:
    """The instants of both changes; `thresholds` in GPU-seconds, which history may move."""

    def __init__(self, ordering: Ordering) -> None:
        self.thresholds = ordering.thresholds
        self.crossings = Timers[JobId]()  # a job's service reaches its level's threshold
        self.promotions = Timers[JobId]()  # a waiting job has starved
        self._knob, self._limit_s = ordering.promote_knob, ordering.starve_limit_s

    def cross(self, job: Job, attempt: Attempt | None) -> None:
        """When this job crosses into the next level; `attempt` is its live one."""
        settled = job.end_time_s is not None or (job.live_attempt is None and not job.waiting)
        if settled or job.level >= len(self.thresholds):
            self.crossings.clear(job.job_id)
            return
        left_gpu_s = self.thresholds[job.level] - job.attained_gpu_s
        if left_gpu_s <= 0.0:
            self.crossings.set(job.job_id, 0.0)  # overdue
        elif attempt is None or attempt.started_time_s is None:
            self.crossings.clear(job.job_id)
        else:
            gpus = job.request.weighed(held_gpus(job, attempt)) * attempt.speed
            exact_s = attempt.started_time_s + left_gpu_s / gpus
            self.crossings.set(job.job_id, exact_s)

    def promote(self, job: Job) -> None:
        """When this job has waited for long enough to rise."""
        due: list[float] = []
        if job.waiting and not job.promoted and job.queued_since_s is not None:
            # A job that never ran, or is in level 0 already, has nothing for the knob to compare.
            if self._knob is not None and job.level > 0 and job.executed_s > 0.0:
                due.append(job.queued_since_s + self._knob * job.executed_s - job.waited_s)
            if self._limit_s is not None:
                due.append(job.queued_since_s + self._limit_s)
        if due:
            self.promotions.set(job.job_id, min(due))
        else:
            self.promotions.clear(job.job_id)
