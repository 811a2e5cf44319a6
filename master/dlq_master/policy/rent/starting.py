"""Starting a job on a machine that was rented, which is closed to everybody else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.jobs.job import Job
from dlq_master.model.lease import first_term_end_s
from dlq_master.model.nodes.node import Node, NodeFlag
from dlq_master.model.plan import Plan, Start
from dlq_master.model.resources import Allocation, Slot, indices, mask_of
from dlq_master.model.why import Reason, ReasonCode
from dlq_master.policy.partition.whole import kind_of_lease
from dlq_master.policy.rent.line import free_on


def start_there(
    cluster: Cluster, job: Job, node: Node, gpus: int, pool: str, now_s: float, *, grid: bool
) -> Plan | None:
    """The plan that starts it on so many GPUs of the node, in terms if there is a `grid`; None: it
    does not wait, or they are not free. It is legal while the node is `opened`."""
    free = list(indices(free_on(cluster, node)))[:gpus]
    if not job.waiting or len(free) < gpus:
        return None
    kind = kind_of_lease()
    end_s = first_term_end_s(now_s, kind, cluster.terms, cluster.saves.lead_s) if grid else inf
    allocation = Allocation((Slot(node.node_id, mask_of(free)),))
    reason = Reason(ReasonCode.RENTED, detail=pool)
    return Plan((Start(job.job_id, allocation, kind, end_s, reason),))


@contextmanager
def opened(cluster: Cluster, node: Node) -> Iterator[None]:
    """For the moment in which those start for whom it was rented."""
    cluster.put_node(node._replace(flags=node.flags | {NodeFlag.RENTED}))
    try:
        yield
    finally:
        cluster.put_node(node)
