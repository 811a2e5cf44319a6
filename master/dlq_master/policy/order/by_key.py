"""Orders by a key of each job, such as its remaining time or its width; the smallest comes first.

The cluster keeps waiting jobs in order (`model.order.waiting`), since their keys do not change. The
keys of running jobs change every second, and each plan computes them anew.
"""

from __future__ import annotations

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.order.keys import Had, Key, KeyRule, Learned, had, position
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.order.order import Discipline, Ordering
from dlq_master.model.order.running import RunningByKey
from dlq_master.model.view import View
from dlq_master.policy.stop_costs import stop_s

_NEVER_S = float("inf")


def always(key: Key) -> KeyRule:
    """The same key, whatever is learned."""
    return lambda _learned: key


def smallest(job: Job, _had: Had) -> tuple[float, ...]:
    """The fewest GPUs."""
    return (job.request.weighed(job.request.gpus),)


def widest(job: Job, _had: Had) -> tuple[float, ...]:
    """The most GPUs."""
    return (-job.request.weighed(job.request.gpus),)


def shortest(job: Job, had: Had) -> tuple[float, ...]:
    """The shortest remaining time; unknown run times last."""
    return (remaining_s(job, had),)


def shortest_service(job: Job, had: Had) -> tuple[float, ...]:
    """The smallest remaining service, in GPU-seconds; unknown run times last."""
    return (remaining_s(job, had) * job.request.weighed(job.request.gpus),)


def shortest_on_base(job: Job, had: Had) -> tuple[float, ...]:
    """The shortest remaining time on the fewest GPUs; unknown run times last."""
    return (remaining_s(job, had) / job.speed_on(job.request.base),)


def longest_waiting(job: Job, had: Had) -> tuple[float, ...]:
    """Waiting jobs before running ones, the longest without GPUs first; of the running ones, the
    latest start first.
    """
    if job.live_attempt is None:
        return (0.0, job.submit_time_s if job.queued_since_s is None else job.queued_since_s)
    return (1.0, -_NEVER_S if had.since_s is None else -had.since_s)


def aged(rule: KeyRule, rate: float) -> KeyRule:
    """The same, and a waiting job rises by `rate` of the key's unit each second, earlier waits
    included. So a job that keeps its place when it runs is not passed at once by jobs that it has
    passed.

    No place changes during a wait, since all waiting jobs rise alike. Instead running jobs sink,
    and a new job comes in further behind. With a key in seconds of work no job starves. It waits no
    longer than its work / rate, even if shorter jobs came all the time.
    """
    if not rate:
        return rule

    def at(learned: Learned) -> Key:
        key = rule(learned)

        def older(job: Job, had: Had) -> tuple[float, ...]:
            first, *others = key(job, had)
            return first + rate * had.unaged_s, *others

        return older

    return at


def lineup(view: View, key: Key, margin: float = 0.0) -> Lineup:
    """The jobs of each priority by key, promoted jobs first. `margin`: a running job is ahead by
    this multiple of the cost of its stop and resume (policy.stop_costs).
    """
    cluster, now_s = view.cluster, view.now_s
    jobs, live = cluster.jobs, cluster.live_attempt

    def stands(job_id: JobId) -> int:
        job = jobs[job_id]
        attempt = live(job)
        kept_s = margin * stop_s(cluster, job, attempt, now_s) if margin else 0.0
        return position(job, key(job, had(job, attempt, now_s, kept_s)))

    return Lineup(cluster.waiting, RunningByKey(cluster.running, stands), together=False)


def remaining_s(job: Job, had: Had) -> float:
    """Seconds of work left on the requested GPUs, less the cost of a stop; inf: unknown."""
    total_s = job.duration_estimate_s
    return _NEVER_S if total_s is None else max(0.0, total_s - had.executed_s - had.kept_s)


ARRIVAL = Ordering(discipline=Discipline.ARRIVAL)


def left_s(cluster: Cluster, job: Job, now_s: float) -> float | None:
    """Seconds of work that are left on the requested GPUs; None: unknown."""
    if job.duration_estimate_s is None:
        return None
    done_s = job.worked_s
    attempt = cluster.live_attempt(job)
    if attempt is not None:
        runs_s = attempt.executed_s(now_s)
        if job.request.sizes:
            runs_s *= job.sure_speed_on(attempt.lease.allocation.width)
        done_s += runs_s * attempt.paced(job.request)
    return max(0.0, job.duration_estimate_s - done_s)
