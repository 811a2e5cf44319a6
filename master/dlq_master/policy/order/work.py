"""The remaining time of a job whose run time is known."""

from __future__ import annotations

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.jobs.job import Job


def left_s(cluster: Cluster, job: Job, now_s: float) -> float | None:
    """Seconds of running that it still needs on the GPUs that it asked for; None: nobody knows."""
    if job.duration_estimate_s is None:
        return None
    done_s = job.worked_s
    attempt = cluster.live_attempt(job)
    if attempt is not None:
        runs_s = attempt.executed_s(now_s)
        if job.request.sizes:
            runs_s *= job.sure_speed_on(attempt.lease.allocation.width)
        done_s += runs_s
    return max(0.0, job.duration_estimate_s - done_s)
