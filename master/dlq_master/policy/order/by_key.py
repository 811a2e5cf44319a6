"""Orders by a key: what a job still needs, is wide, or is worth now decides who is next."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from dlq_master.model.cluster import Cluster
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.job import Job
from dlq_master.model.lineup import Lineup
from dlq_master.model.order import STARTED_BASE
from dlq_master.model.running import RunningIndex
from dlq_master.model.view import View
from dlq_master.model.waiting import WaitingIndex

_NEVER_S = float("inf")


class Had(NamedTuple):
    """What a job has had by now, what runs included.

    `attained_gpu_s` counts since the last promotion; `executed_s` is work that need not be done again;
    its turn began at `since_s` (None: it waits, or holds GPUs on which nothing runs yet).
    """

    attained_gpu_s: float
    executed_s: float
    since_s: float | None = None


# The smallest first, inside a rank; ties keep the order of positions. All of a level have the same
# length.
Key = Callable[[Job, Had], tuple[float, ...]]
# What gives a plan its key: it may depend on what the cluster has learned.
KeyRule = Callable[[Cluster], Key]


def always(key: Key) -> KeyRule:
    """The same key for every plan."""
    return lambda _cluster: key


def smallest(job: Job, _had: Had) -> tuple[float, ...]:
    """The fewest GPUs."""
    return (job.request.gpus,)


def shortest(job: Job, had: Had) -> tuple[float, ...]:
    """The shortest remaining time; a job whose run time nobody knows comes last."""
    return (_remaining_s(job, had),)


def shortest_service(job: Job, had: Had) -> tuple[float, ...]:
    """The smallest remaining service, in GPU-seconds; a job whose run time nobody knows comes last."""
    return (_remaining_s(job, had) * job.request.gpus,)


def longest_waiting(job: Job, had: Had) -> tuple[float, ...]:
    """Who waits before who runs, the longest without GPUs first; of those that run, whose turn has
    just begun."""
    if job.live_attempt is None:
        return (0.0, job.submit_time_s if job.queued_since_s is None else job.queued_since_s)
    return (1.0, -_NEVER_S if had.since_s is None else -had.since_s)


def lineup(view: View, rule: KeyRule) -> Lineup:
    """Everybody of a rank by key; promoted jobs keep its head. Costs O(n log n) over all who wait
    or run: a key may change with every second that a job runs."""
    cluster = view.cluster
    key = rule(cluster)
    everybody = []
    for rank, shapes in cluster.waiting.by_rank.items():
        for fifo in shapes.values():
            everybody += [(rank, cluster.jobs[job_id]) for job_id in fifo]
    everybody += [
        (place.rank, cluster.jobs[job_id]) for job_id, place in cluster.running.places.items()
    ]
    waiting, running = WaitingIndex(), RunningIndex()
    order = sorted(
        (rank, *_place(job, key(job, _had(view, job))), job.job_id) for rank, job in everybody
    )
    for position, (rank, promoted, *_, job_id) in enumerate(order, start=STARTED_BASE + 1):
        _enter(cluster, waiting, running, rank, promoted or position, job_id)
    return Lineup(waiting, running, together=False)


def _place(job: Job, key: tuple[float, ...]) -> tuple[int, tuple[float, ...], int]:
    """Where it stands in its rank; the first number is 0 for all but the promoted."""
    return (min(job.sequence, STARTED_BASE), key, job.sequence)


def _had(view: View, job: Job) -> Had:
    executed_s = job.total_executed_s - job.lost_gpu_s / job.request.gpus
    attempt = view.cluster.live_attempt(job)
    if attempt is None or attempt.started_time_s is None:
        return Had(job.attained_gpu_s, executed_s)
    runs_s = view.now_s - attempt.started_time_s
    attained_gpu_s = job.attained_gpu_s + runs_s * job.request.gpus
    return Had(attained_gpu_s, executed_s + runs_s, attempt.started_time_s)


def _enter(
    cluster: Cluster,
    waiting: WaitingIndex,
    running: RunningIndex,
    rank: int,
    position: int,
    job_id: JobId,
) -> None:
    job = cluster.jobs[job_id]
    if job.live_attempt is None:
        waiting.add(rank, cluster.shape(job), job_id, position)
    else:
        key = AttemptKey(job_id, job.live_attempt)
        end_s = cluster.running.places[job_id].term_end_s
        running.put(key, rank, position, job.request.gpus, end_s)


def _remaining_s(job: Job, had: Had) -> float:
    total_s = job.duration_estimate_s
    return _NEVER_S if total_s is None else max(0.0, total_s - had.executed_s)
