"""The sizes that GENIE chooses: for each job with deadlines the fewest GPUs that meet its deadline
(`sizes=chosen`).

Chen et al., TPDS 2020: a model of each kind of job, made offline, tells how long it runs on each
number of GPUs. The scheduler looks for the numbers that meet the deadline. Here a job says on
which numbers of GPUs it runs, and its speed on each is told or measured (`Job.speed_on`).

- A job gets the fewest GPUs on which it ends before its first deadline, if it starts now. If none
  will do it gets those on which it ends first; of equal ones the fewest.
- The size is chosen anew at each plan for as long as the job waits. A job that runs keeps its GPUs.
- A best-effort job gets the GPUs that it asks for, and so does a job whose run time nobody knows.
- The order is that of `genie`. A job whose size does not fit waits, and others pass it.
"""

from __future__ import annotations

from collections.abc import Iterable

from dlq_baselines.deadlines import due_s, least_laxity
from dlq_master.model.jobs.job import Job
from dlq_master.model.order.keys import had
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.resources import Shape
from dlq_master.model.view import View
from dlq_master.policy.order.by_key import left_s
from dlq_master.policy.order.ordered import by_priority, lined_up


class SizedByDeadline:
    """Jobs by laxity, each in the shape of the size that it is to get."""

    @property
    def anew(self) -> bool:
        return True

    def lineup(self, view: View, margin: float) -> Lineup:
        """All jobs in order. Costs O(n log n) over all that wait or run."""
        cluster = view.cluster

        def shape(job: Job) -> Shape:
            return cluster.shape_on(job, size(view, job))

        lines = [(priority, _ranked(view, jobs)) for priority, jobs in by_priority(cluster).items()]
        return lined_up(cluster, lines, shape)


def size(view: View, job: Job) -> int:
    """The GPUs on which this job is to start now."""
    left = left_s(view.cluster, job, view.now_s)
    if not job.steps or not job.request.sizes or left is None:
        return job.request.gpus
    spare_s = due_s(job) - view.now_s
    takes_s = {gpus: left / job.speed_on(gpus) for gpus in job.request.sizes}
    first = next((gpus for gpus, needs_s in takes_s.items() if needs_s <= spare_s), None)
    return min(takes_s, key=lambda gpus: takes_s[gpus]) if first is None else first


def _ranked(view: View, jobs: Iterable[Job]) -> list[Job]:
    cluster = view.cluster

    def rank(job: Job) -> tuple[float, ...]:
        key = least_laxity(job, had(job, cluster.live_attempt(job), view.now_s))
        return (*key, job.sequence)

    return sorted(jobs, key=rank)
