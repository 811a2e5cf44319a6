"""A line-up from any order of the jobs: for rules that compare all of them at once."""

from __future__ import annotations

from collections.abc import Iterable

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey
from dlq_master.model.jobs.job import Job
from dlq_master.model.order.keys import STARTED_BASE
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.order.running import RunningIndex
from dlq_master.model.order.waiting import WaitingIndex


def by_rank(cluster: Cluster) -> dict[int, list[Job]]:
    """Everybody who waits or runs, by rank, the first rank first; in a rank in no certain order."""
    jobs = cluster.jobs
    found: dict[int, list[Job]] = {}
    for rank, shapes in cluster.waiting.by_rank.items():
        found[rank] = [jobs[job_id] for fifo in shapes.values() for job_id in fifo]
    for rank, members in cluster.running.by_rank.items():
        found.setdefault(rank, []).extend([jobs[job_id] for job_id in members])
    return dict(sorted(found.items()))


def lined_up(cluster: Cluster, ranks: Iterable[tuple[int, Iterable[Job]]]) -> Lineup:
    """The jobs of each rank in this order."""
    waiting, running = WaitingIndex(), RunningIndex()
    position = STARTED_BASE
    for rank, jobs in ranks:
        for job in jobs:
            position += 1
            if job.live_attempt is None:
                waiting.add(rank, cluster.shape(job), job.job_id, position)
            else:
                place = cluster.running.places[job.job_id]
                key = AttemptKey(job.job_id, job.live_attempt)
                running.put(key, rank, position, place.gpus, place.term_end_s)
    return Lineup(waiting, running, together=False)
