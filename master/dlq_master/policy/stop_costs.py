"""The seconds that a stop costs a job, and when a job that runs will have ended."""

from __future__ import annotations

from math import inf

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.jobs.job import Job


def pause_and_resume_s(cluster: Cluster, job: Job) -> float:
    """Without progress on its GPUs, when it stops and when it goes on: measured where that is
    known.
    """
    costs, terms = cluster.costs, cluster.terms
    if not (job.family or job.saves or job.resumes):  # nothing was ever measured of it
        return terms.save_lead_s + terms.resume_s
    return costs.pause_s(job, terms) + costs.resume_s(job, terms)


def stop_s(cluster: Cluster, job: Job, attempt: Attempt | None, now_s: float) -> float:
    """The same, and of a job that cannot save all that it has done since it started."""
    cost_s = pause_and_resume_s(cluster, job)
    return cost_s if job.keeps_work or attempt is None else cost_s + attempt.executed_s(now_s)


def expected_end_s(job: Job, attempt: Attempt, began_s: float | None) -> float:
    """By its estimate, or else its time limit; inf: nobody knows. The rest of its work takes as
    long as its live attempt needs on its GPUs. `began_s`: when that attempt started, or will. While
    it is suspended nobody knows.
    """
    if attempt.is_out:
        return inf
    left_s = job.limit_at_start_s
    if job.duration_estimate_s is not None:
        width = attempt.lease.allocation.width
        speed = job.sure_speed_on(width) if width != job.request.gpus else 1.0
        left_s = max(0.0, job.duration_estimate_s - job.worked_s)
        left_s /= speed * attempt.paced(job.request)
    return inf if left_s is None or began_s is None else began_s + left_s
