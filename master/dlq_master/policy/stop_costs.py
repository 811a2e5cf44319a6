"""The cost of taking work off its GPUs, in seconds of its run time."""

from __future__ import annotations

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
