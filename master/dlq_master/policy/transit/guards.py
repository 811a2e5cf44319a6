"""Guards against thrashing: whom the order alone may not take off its GPUs.

They stand between jobs that compete by the order. Whoever holds a slot of a promise, or is to be measured, comes
before them; and what is no preemption by the order (a reclaim, a node that fails or drains, a person's wish, a
job that makes way and goes on elsewhere) neither asks them nor counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dlq_master.model.attempt import Attempt
from dlq_master.model.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.job import Job
from dlq_master.model.lane import Lane
from dlq_master.policy.transit.costs import pause_and_resume_s


class Guards(NamedTuple):
    """`min_run`: nobody leaves before it has run so many times what its pause and resume cost. `most`: after
    so many preemptions a job runs to its end; None: there is no such number. `margin`: who runs stands ahead
    in the order by so many times that cost: it leaves only for who is better by more."""

    min_run: float = 0.0
    most: int | None = None
    margin: float = 0.0


NONE = Guards()


def protects(cluster: Cluster, guards: Guards, job: Job, attempt: Attempt) -> bool:
    """Whether its GPUs stay its own at the end of its term, whoever ranks before it.

    Who borrows from other teams can be preempted any number of times: what it has is theirs.
    """
    if job.lane < Lane.SPOT:  # it does not stand by the order
        return False
    if guards.most is not None and job.displaced >= guards.most and job.lane < Lane.BORROW:
        return True
    if not guards.min_run:
        return False
    since_s = attempt.started_time_s
    if since_s is None:
        since_s = attempt.assigned_time_s
    ran_s = attempt.lease.term_end_s - since_s
    return ran_s < guards.min_run * pause_and_resume_s(cluster, job)


def protected(
    cluster: Cluster, guards: Guards, keys: Iterable[AttemptKey]
) -> dict[AttemptKey, JobId]:
    """Those of these attempts that are, each with its job."""
    if guards.most is None and not guards.min_run:
        return {}
    jobs, attempts = cluster.jobs, cluster.attempts
    return {
        key: key.job_id
        for key in keys
        if protects(cluster, guards, jobs[key.job_id], attempts[key])
    }
