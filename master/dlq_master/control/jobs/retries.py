"""Jobs that the cluster has failed, and when to look where they may go.

Nothing here is stored: the facts stand in the jobs (`failed_nodes`, `retry_time_s`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dlq_master.control.jobs.gates import Gates
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.cluster.drive import Happened
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.eligible import Block
from dlq_master.model.jobs.job import Job


@dataclass(slots=True)
class Retries:
    """Empty as long as the cluster fails nobody."""

    jobs: dict[JobId, None] = field(default_factory=dict)
    due: bool = False  # one of them, or a node, has changed since the last look

    def moved(self, cluster: Cluster, gates: Gates, happened: Iterable[Happened]) -> None:
        """These have moved: a job may have failed, or nodes may have come or gone."""
        for one in happened:
            if one.node_id is not None:
                self.due = True
            elif one.job_id is not None and one.attempt is None:
                job = cluster.jobs.get(one.job_id)
                if job is not None and (job.failed_nodes or job.request.avoid):
                    self.jobs[job.job_id] = None
                    self.due = True
                    if job.blocked is Block.BACKOFF:
                        gates.wait_for_retry(job)


def build(jobs: Mapping[JobId, Job]) -> Retries:
    """Those of a master that has just loaded its jobs."""
    concerned = [job.job_id for job in jobs.values() if job.failed_nodes and not job.ended]
    return Retries(dict.fromkeys(concerned), due=bool(concerned))
