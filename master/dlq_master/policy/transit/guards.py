"""Guards against thrashing: running jobs that a better place in the order alone may not preempt.

A guard protects a job from jobs that compete by the order. It does not protect from a job in a slot
of a promise, or from a trial. Their preemptions count all the same, because each costs the job a
stop. Two kinds of stops ignore the guards and do not count:

- stops without a competing job: a reclaim, a node that fails or drains, a user's command;
- stops after which the job starts elsewhere at once (making way).
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
    """`min_run` and `margin` are multiples of the cost of the job's pause and resume.

    `min_run`: a job runs at least this long before it is preempted.
    `most`: a job that was preempted this often runs to its end; None: no limit.
    `margin`: a running job is preempted only for a job that is ahead of it by more than this.
    `cooldown_s`: a job runs this long on its GPUs before it gets more.
    """

    min_run: float = 0.0
    most: int | None = None
    margin: float = 0.0
    cooldown_s: float = 0.0


NONE = Guards()


def protects(
    cluster: Cluster, guards: Guards, job: Job, attempt: Attempt, by_s: float | None = None
) -> bool:
    """Whether a guard keeps the attempt on its GPUs at `by_s` (None: at the end of its term).

    A job that borrows from other teams can be preempted any number of times: its GPUs are theirs.
    """
    band = job.band
    if band < _SPOT:  # a slot or a trial: the order does not apply to it
        return False
    left = job.displaced + attempt.suspensions  # with a save, and without
    if guards.most is not None and left >= guards.most and band < _BORROW:
        return True
    if not guards.min_run:
        return False
    until_s = attempt.lease.term_end_s if by_s is None else by_s
    return until_s < _min_run_end_s(cluster, guards, job, attempt)


def _min_run_end_s(cluster: Cluster, guards: Guards, job: Job, attempt: Attempt) -> float:
    """When `min_run` of this attempt is over."""
    return _since_s(attempt) + guards.min_run * pause_and_resume_s(cluster, job)


def _since_s(attempt: Attempt) -> float:
    """When it started; before its start: when it got its GPUs."""
    since_s = attempt.started_time_s
    return attempt.assigned_time_s if since_s is None else since_s


def next_min_run_end_s(cluster: Cluster, guards: Guards, now_s: float) -> float:
    """When the next `min_run` of a running job ends (inf: all are over)."""
    if not guards.min_run:
        return inf
    jobs = cluster.jobs
    ends_s = [
        _min_run_end_s(cluster, guards, jobs[key.job_id], attempt)
        for key, attempt in cluster.attempts.items()
        if attempt.stop_cause is None
    ]
    return min([end_s for end_s in ends_s if end_s > now_s], default=inf)


def within_min_run(
    cluster: Cluster, guards: Guards, keys: Iterable[AttemptKey]
) -> frozenset[JobId]:
    """The elastic jobs among these whose `min_run` outlasts their term: they keep their size."""
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
            < _min_run_end_s(cluster, guards, jobs[key.job_id], attempts[key])
        ]
    )


def cooling(cluster: Cluster, guards: Guards, keys: Iterable[AttemptKey]) -> frozenset[JobId]:
    """The elastic jobs among these whose `cooldown_s` outlasts their term: they do not grow."""
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
    """The protected ones among these attempts, each with its job."""
    if guards.most is None and not guards.min_run:
        return {}
    jobs, attempts = cluster.jobs, cluster.attempts
    return {
        key: key.job_id
        for key in keys
        if protects(cluster, guards, jobs[key.job_id], attempts[key], by_s)
    }
