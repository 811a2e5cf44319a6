"""A line-up from any order of the jobs: for rules that compare all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey
from dlq_master.model.jobs.job import Job
from dlq_master.model.order.keys import STARTED_BASE
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.order.running import RunningIndex
from dlq_master.model.order.waiting import WaitingIndex
from dlq_master.model.resources import Shape


def by_priority(cluster: Cluster) -> dict[int, list[Job]]:
    """Waiting and running jobs by priority, the first one first; inside a priority in any order."""
    jobs = cluster.jobs
    found: dict[int, list[Job]] = {}
    for priority, shapes in cluster.waiting.by_priority.items():
        found[priority] = [jobs[job_id] for fifo in shapes.values() for job_id in fifo]
    for priority, members in cluster.running.by_priority.items():
        found.setdefault(priority, []).extend([jobs[job_id] for job_id in members])
    return dict(sorted(found.items()))


def lined_up(
    cluster: Cluster,
    priorities: Iterable[tuple[int, Iterable[Job]]],
    shape: Callable[[Job], Shape] | None = None,
) -> Lineup:
    """The jobs of each priority in this order. `shape`: in which each is to start; None: in its
    own.
    """
    shape = shape or cluster.shape
    waiting, running = WaitingIndex(), RunningIndex()
    position = STARTED_BASE
    for priority, jobs in priorities:
        for job in jobs:
            position += 1
            if job.live_attempt is None:
                waiting.add(priority, shape(job), job.job_id, position)
            else:
                place = cluster.running.places[job.job_id]
                key = AttemptKey(job.job_id, job.live_attempt)
                running.put(key, priority, position, place.gpus, place.term_end_s)
    return Lineup(waiting, running, together=False)
