"""Checks a plan's changes of lent servers and of trials.

A server goes from away to lent, from lent to asked back, and once empty away again.
"""

from __future__ import annotations

from typing import assert_never

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.trials import Profiling
from dlq_master.model.nodes.node import NodeFlag
from dlq_master.model.plan import Estimate, Loan, Profile, Reclaim, Return, Scale


class Servers:
    """The servers as the plan's earlier changes leave them."""

    __slots__ = ("_cluster", "_named")

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._named: set[NodeId] = set()  # asked back by an earlier change

    def asked_back(self, node_id: NodeId) -> bool:
        """Whether no job may start there, and the jobs there have to give it up."""
        flags = self._cluster.nodes[node_id].flags
        return node_id in self._named or flags >= {NodeFlag.LOANED, NodeFlag.RECLAIMED}

    def fault(self, change: Loan | Reclaim | Return) -> str:
        """The fault in the change; empty: none, and it counts from now on."""
        node_id = change.node_id
        node = self._cluster.nodes.get(node_id)
        if node is None:
            return f"there is no node {node_id}"
        lent, back = NodeFlag.LOANED in node.flags, self.asked_back(node_id)
        match change:
            case Loan():
                return f"node {node_id} is lent already" if lent and not back else ""
            case Reclaim():
                self._named.add(node_id)
                return f"node {node_id} is not lent" if not lent or back else ""
            case Return():
                held = self._cluster.attempts_on(node_id)
                if back and held:
                    return f"node {node_id} is still held by {held}"
                return "" if back else f"node {node_id} was not asked back"
            case _:
                assert_never(change)


def scale_fault(scale: Scale, profiling: Profiling) -> str:
    """The fault in the number of GPUs for trials; empty: none."""
    if scale.hour <= profiling.hour:
        return "the GPUs for trials of this hour have been decided already"
    return "" if scale.gpus >= 0 else "trials on fewer than no GPUs"


def job_fault(change: Profile | Estimate, job: Job, profiling: Profiling) -> str:
    """The fault in a trial of a job, or in its run time; empty: none."""
    if job.job_id not in profiling.unknown:
        return f"job {job.job_id} needs no estimate"
    if isinstance(change, Estimate):
        return "" if 0.0 < change.estimate_s < float("inf") else "no run time"
    asked, trials = job.request.gpus, change.trials
    fewer = bool(trials) and all(0 < gpus < asked for gpus in trials)
    return "" if trials == (asked,) or fewer else f"trials on {trials} GPUs, of {asked} asked"
