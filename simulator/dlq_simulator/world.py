"""The replay's world: a cluster of virtual nodes, and how fast work gets done on them."""

from __future__ import annotations

from collections.abc import Mapping

from dlq_master.model.cluster import Cluster
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.job import Job
from dlq_master.model.lease import Terms
from dlq_master.model.node import Gpu, Node
from dlq_master.model.order import Ordering
from dlq_master.model.packing import Profile
from dlq_master.model.resources import Allocation, Request
from dlq_simulator.clusters import ClusterSpec
from dlq_simulator.course import Seconds
from dlq_simulator.speed import Speed
from dlq_simulator.workload import TraceJob


def build_cluster(spec: ClusterSpec, ordering: Ordering, terms: Terms) -> Cluster:
    """All nodes up and empty at time 0."""
    cluster = Cluster(ordering, terms)
    for node_id, group in spec.each_node():
        gpus = tuple(
            Gpu(index=index, gpu_type=group.gpu_type, memory_bytes=group.memory_bytes)
            for index in range(group.gpus)
        )
        cluster.put_node(Node(node_id=NodeId(node_id), gpus=gpus, virtual=True))
    return cluster


def build_job(
    job_id: JobId,
    row: TraceJob,
    *,
    typed: bool,
    estimate_s: float | None = None,
    queue: tuple[str, int] = ("default", 0),
) -> Job:
    """What the scheduler is told of a row.

    `typed`: the cluster names its GPU types, so a row's type counts unless it takes any.
    `estimate_s`: all that it is told of how long the job runs. `queue`: its name and its rank among
    the queues.
    """
    gpu_type = row.gpu_type if typed and not row.any_gpu else None
    return Job(
        job_id=job_id,
        user=row.user or "trace",
        name=row.job_id,
        request=Request(gpus=row.num_gpus, gpu_type=gpu_type),
        submit_time_s=row.submit_time_s,
        duration_estimate_s=estimate_s,
        queue=queue[0],
        rank_base=queue[1],
        profile=Profile(skew=row.skew, rho=row.rho),
    )


class Rates:
    """The speed of each placement: what `Speed` says of it, on these nodes."""

    __slots__ = ("_cluster", "_of_node", "_places", "_speed")

    def __init__(self, speed: Speed, spec: ClusterSpec, cluster: Cluster, *, places: bool) -> None:
        """`places`: which nodes a job gets means something; where GPUs are only counted, nothing."""
        self._speed = speed
        self._cluster = cluster
        self._places = places and speed.slowdown
        of_node = {NodeId(node_id): group.speed for node_id, group in spec.each_node()}
        uniform = set(of_node.values()) == {1}
        self._of_node: Mapping[NodeId, Seconds] = {} if uniform else of_node

    def rate(self, row: TraceJob, allocation: Allocation) -> Seconds:
        """Work done per second. A gang is as fast as its slowest node."""
        slots, of_node = allocation.slots, self._of_node
        of_gpu = min([of_node[node_id] for node_id, _ in slots]) if of_node else 1
        spread = self._places and len(slots) > 1 and self._spread(row, allocation)
        gpus = allocation.width
        if of_gpu == 1 and not spread and gpus == row.num_gpus:
            return 1
        return self._speed.rate(row, gpus, spread=spread, of_gpu=of_gpu)

    def _spread(self, row: TraceJob, allocation: Allocation) -> bool:
        """Over more nodes than the width needs; only asked of jobs to which it matters."""
        if row.rho is None and row.skew is None:
            return False
        capacity = self._cluster.capacity
        (gpu_type, *_) = capacity.masks_of(allocation.slots[0].node_id)
        return len(allocation.slots) > capacity.total[gpu_type].fewest_nodes(allocation.width)
