"""Orders by deadline that Chronus compares itself with (its section 4.3): `edf` and `genie`.

A job with reward steps is an SLO job. The first of its deadlines counts, from its submission on,
also after it has passed. Such schedulers "only consider the strict deadlines" (5.4). A deadline
without weight after its end would be a key that changes while its job waits. So late jobs stay in
front and delay others, which is what EDF does under overload. The order of a priority is

    SLO jobs that run | SLO jobs that wait | best-effort jobs that run | best-effort jobs that wait

The first never leave for the second, and the third leave only for the second. ("SLO jobs are
allowed to preempt best-effort jobs", "we disable the preemption of SLO jobs"). Best-effort jobs
keep the order of arrival among themselves; the paper gives no order. A priority is served before
the next, as under every policy. So a queue of higher priority may still take GPUs of SLO jobs of
another.
"""

from __future__ import annotations

from dlq_master.model.jobs.job import Job
from dlq_master.model.order.keys import Had
from dlq_master.policy.order.by_key import remaining_s

_SLO_RUNS, _SLO_WAITS, _RUNS, _WAITS = 0.0, 1.0, 2.0, 3.0
_NEVER_S = float("inf")


def earliest_deadline(job: Job, _had: Had) -> tuple[float, ...]:
    """`edf`: the earliest deadline first among the SLO jobs that wait."""
    return (_SLO_WAITS, due_s(job)) if _slo_waits(job) else _settled(job)


def earliest_deadline_of_all(job: Job, _had: Had) -> tuple[float, ...]:
    """`edf-preemptive`: the earliest deadline first among all SLO jobs, those that run included.

    Not in the paper, whose `edf` could not win where SLO jobs arrive that are more urgent than the
    running ones. Without this policy the gain of Chronus by its plans could not be told from its
    gain by preempting.
    """
    return (_SLO_WAITS, due_s(job)) if job.steps else _settled(job)


def least_laxity(job: Job, had: Had) -> tuple[float, ...]:
    """`genie`: "SLO jobs with the smallest laxity" first, best-effort jobs with the lowest
    priority.

    Laxity is deadline - now - remaining time. That of all who wait falls alike, so the instant at
    which a job would have to start decides; it may have passed. Deviations: GENIE chooses numbers
    of GPUs itself, "ignoring the resource requirements of users" (2.2). Here a job gets the GPUs
    that it asks for, unless `genie_sizes` chooses. SLO jobs do not preempt each other, since the
    paper says that GENIE lacks preemption (5.4). A job whose run time nobody knows is the last of
    the SLO jobs.
    """
    if not _slo_waits(job):
        return _settled(job)
    left_s = remaining_s(job, had)
    return (_SLO_WAITS, left_s if left_s == _NEVER_S else due_s(job) - left_s)


def due_s(job: Job) -> float:
    """The first deadline of an SLO job, on the clock of the cluster."""
    return job.submit_time_s + job.steps[0].deadline_s


def _slo_waits(job: Job) -> bool:
    return bool(job.steps) and job.live_attempt is None


def _settled(job: Job) -> tuple[float, ...]:
    """Of everybody else: ties keep the order of arrival."""
    if job.live_attempt is None:
        return (_WAITS, 0.0)
    return (_SLO_RUNS if job.steps else _RUNS, 0.0)
