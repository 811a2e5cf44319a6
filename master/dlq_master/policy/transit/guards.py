"""Guards against thrashing: jobs that the order alone may not take off their GPUs.

They stand between jobs that compete by the order. A holder of a slot of a promise, or a job to be
measured, comes before them, but its preemptions count. A stop costs the job the same for any
winner. After so many of them it is left alone by every job that it need not make room for. Some
stops ask them nothing and do not count. They are stops without another job's request (a reclaim, a
node that fails or drains, a person's wish). The others take the job elsewhere at once (making way).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job
from dlq_master.policy.stop_costs import pause_and_resume_s

# Looking a member up costs more than comparing it.
_SPOT, _BORROW = Band.SPOT, Band.BORROW


class Guards(NamedTuple):
    """`min_run`: nobody leaves before it has run so many times what its pause and resume cost.
    `most`: after so many preemptions a job runs to its end; None: there is no such number.
    `margin`: a running job stands ahead in the order by so many times that cost. It leaves only for
    a job that is better by more. `cooldown_s`: nobody is given more GPUs before it has run so long
    with those that it has.
    """

    min_run: float = 0.0
    most: int | None = None
    margin: float = 0.0
    cooldown_s: float = 0.0


NONE = Guards()


def protects(
    cluster: Cluster, guards: Guards, job: Job, attempt: Attempt, by_s: float | None = None
) -> bool:
    """Whether its GPUs stay its own at `by_s`, whatever ranks before it. None: at the end of its
    term.

    A job that borrows from other teams can be preempted any number of times: its GPUs are theirs.
    """
    band = job.band
    if band < _SPOT:  # it does not stand by the order
        return False
    left = job.displaced + attempt.suspensions  # with a save, and without
    if guards.most is not None and left >= guards.most and band < _BORROW:
        return True
    if not guards.min_run:
        return False
    until_s = attempt.lease.term_end_s if by_s is None else by_s
    return until_s < _old_s(cluster, guards, job, attempt)


def _old_s(cluster: Cluster, guards: Guards, job: Job, attempt: Attempt) -> float:
    """When it has run for its minimum."""
    since_s = attempt.started_time_s
    if since_s is None:
        since_s = attempt.assigned_time_s
    return since_s + guards.min_run * pause_and_resume_s(cluster, job)


def _since_s(attempt: Attempt) -> float:
    since_s = attempt.started_time_s
    return attempt.assigned_time_s if since_s is None else since_s


def next_old_s(cluster: Cluster, guards: Guards, now_s: float) -> float:
    """When the next running job has run for its minimum (inf: all have)."""
    if not guards.min_run:
        return inf
    jobs = cluster.jobs
    ends_s = [
        _old_s(cluster, guards, jobs[key.job_id], attempt)
        for key, attempt in cluster.attempts.items()
        if attempt.stop_cause is None
    ]
    return min([end_s for end_s in ends_s if end_s > now_s], default=inf)


def young(cluster: Cluster, guards: Guards, keys: Iterable[AttemptKey]) -> frozenset[JobId]:
    """Elastic jobs of those that have not run for long enough to be stopped for another size."""
    sized = cluster.running.sized
    if not (guards.min_run and sized):
        return frozenset()
    jobs, attempts = cluster.jobs, cluster.attempts
    return frozenset(
        [
            key.job_id
            for key in keys
            if key.job_id in sized
            and cluster.elastic(jobs[key.job_id])
            and attempts[key].lease.term_end_s
            < _old_s(cluster, guards, jobs[key.job_id], attempts[key])
        ]
    )


def cooling(cluster: Cluster, guards: Guards, keys: Iterable[AttemptKey]) -> frozenset[JobId]:
    """Jobs of several sizes of those that have not run for long enough to be given more GPUs."""
    sized = cluster.running.sized
    if not (guards.cooldown_s and sized):
        return frozenset()
    attempts = cluster.attempts
    return frozenset(
        [
            key.job_id
            for key in keys
            if key.job_id in sized
            and attempts[key].lease.term_end_s - _since_s(attempts[key]) < guards.cooldown_s
        ]
    )


def protected(
    cluster: Cluster, guards: Guards, keys: Iterable[AttemptKey], by_s: float | None = None
) -> dict[AttemptKey, JobId]:
    """Those of these attempts that are, each with its job."""
    if guards.most is None and not guards.min_run:
        return {}
    jobs, attempts = cluster.jobs, cluster.attempts
    return {
        key: key.job_id
        for key in keys
        if protects(cluster, guards, jobs[key.job_id], attempts[key], by_s)
    }
