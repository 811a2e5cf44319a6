"""The scheduling order of a plan: waiting and running jobs by priority and position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dlq_master.model.ids import JobId
from dlq_master.model.nodes.free_gpus import Parts
from dlq_master.model.order.running import RunningByKey, RunningIndex
from dlq_master.model.order.waiting import WaitingIndex
from dlq_master.model.resources import Shape


class OutPlace(NamedTuple):
    """Where a suspended job stands, and the GPUs to which it comes back, by type."""

    priority: int
    position: int
    job_id: JobId
    parts: Mapping[str, Parts]


class Lineup(NamedTuple):
    """The cluster's own indexes. The place of a running job changes at every plan if a key changes
    with time. A rule that compares all jobs at once makes indexes of its own.

    `together`: running jobs between STARTED_BASE and STARTED_END go ahead of every waiting job of
    their priority but promoted ones. So they may be kept as one sum.

    `out`: suspended jobs that come back, in order. No job behind one of them gets its GPUs.
    """

    waiting: WaitingIndex
    running: RunningIndex | RunningByKey
    together: bool
    out: tuple[OutPlace, ...] = ()

    def position(self, priority: int, shape: Shape, job_id: JobId) -> int:
        """The place of a job of this priority and shape that waits or runs."""
        if job_id in self.running.places:
            return self.running.position(job_id)
        return self.waiting.by_priority[priority][shape][job_id]
