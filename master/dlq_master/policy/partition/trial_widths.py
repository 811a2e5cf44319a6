"""On how many GPUs a job is tried: on its own, or on one node and then on two if it is wider."""

from __future__ import annotations

from math import ceil

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.jobs.job import Job
from dlq_master.policy.promise.capacity.grids import type_of

_MOST_NODES = 2


def node_gpus(cluster: Cluster, gpu_type: str) -> int:
    """GPUs of a node of this type, as most of its GPUs are in nodes; 0: there is none."""
    cluster.capacity.ready()
    pool = cluster.capacity.total.get(gpu_type)
    nodes = [] if pool is None else [bucket.bit_count() for bucket in pool.buckets]
    return max(range(len(nodes)), key=lambda gpus: (gpus * nodes[gpus], gpus), default=0)


def nodes_of(cluster: Cluster, job: Job) -> int:
    """On how many nodes it runs; 0: there is none that it could run on."""
    request = job.request
    if request.nodes is not None:
        return request.nodes
    size = node_gpus(cluster, type_of(cluster, job))
    return ceil(request.gpus / size) if size else 0


def trials_of(cluster: Cluster, job: Job) -> tuple[int, ...]:
    """GPUs of the trials that tell how long it runs; empty: there is no node for any.

    A trial on its own GPUs does the job's work: jobs that are short, or fail soon, end in it.
    """
    nodes, gpus = nodes_of(cluster, job), job.request.gpus
    if not nodes:
        return ()
    if nodes <= _MOST_NODES:
        return (gpus,)
    if job.request.nodes is not None:
        each = gpus // nodes
    else:
        each = node_gpus(cluster, type_of(cluster, job))
    return each, _MOST_NODES * each


def charged(gpus: int, node_gpus: int) -> int:
    """The cost of a job of so many GPUs for the profiler: two nodes at most."""
    return min(gpus, _MOST_NODES * node_gpus)
