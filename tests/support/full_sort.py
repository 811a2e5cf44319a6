"""Everybody who waits or runs, sorted anew by key: the oracle for the indexes that keep the
order.
"""

from __future__ import annotations

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.order.keys import had
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.view import View
from dlq_master.policy.stop_costs import stop_s

Stand = tuple[int, JobId, bool]  # priority, job, whether it waits


def by_key(view: View, margin: float = 0.0) -> list[Stand]:
    """Promoted jobs first, then by key, then by sequence; who runs stands ahead by `margin` times
    what its stop costs."""
    cluster = view.cluster
    rule = cluster.ordering.key
    assert rule is not None
    key = rule(cluster.learned)

    def place(job: Job) -> tuple[int, int, tuple[float, ...], int]:
        attempt = cluster.live_attempt(job)
        attained = had(job, attempt, view.now_s)
        if attempt is not None:
            cost_s = stop_s(cluster, job, attempt, view.now_s)
            attained = attained._replace(kept_s=margin * cost_s)
        return cluster.priority(job), min(job.sequence, 0), key(job, attained), job.sequence

    jobs = [job for job in cluster.jobs.values() if job.waiting]
    jobs += [cluster.jobs[job_id] for job_id in cluster.running.places]
    return [(cluster.priority(job), job.job_id, job.waiting) for job in sorted(jobs, key=place)]


def as_lined_up(order: Lineup) -> list[Stand]:
    """The same of a line-up."""
    found = [
        (priority, position, job_id, True)
        for priority, shapes in order.waiting.by_priority.items()
        for line in shapes.values()
        for job_id, position in line.items()
    ]
    found += [
        (priority, order.running.position(job_id), job_id, False)
        for priority in order.running.by_priority
        for job_id in order.running.in_order(priority)
    ]
    return [(priority, job_id, waits) for priority, _, job_id, waits in sorted(found)]
