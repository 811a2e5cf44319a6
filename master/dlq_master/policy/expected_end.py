"""When a job that runs will have ended, as far as anybody says."""

from __future__ import annotations

from math import inf

from dlq_master.model.jobs.job import Job


def expected_end_s(job: Job, started_s: float | None) -> float:
    """By its estimate, or else its time limit; inf: nobody knows. `started_s`: of its live
    attempt.
    """
    total_s = job.duration_estimate_s if job.duration_estimate_s is not None else job.time_limit_s
    if total_s is None or started_s is None:
        return inf
    return started_s + max(0.0, total_s - job.total_executed_s)
