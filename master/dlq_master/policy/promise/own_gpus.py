"""What whoever is refused is told of the cluster's own GPUs."""

from __future__ import annotations

from dlq_master.model.cluster import Cluster
from dlq_master.policy.place.roundup import block_of
from dlq_master.policy.promise.leases import Grid
from dlq_master.policy.promise.reading import own_pool


def own_types(cluster: Cluster) -> list[str]:
    """The types of GPUs on the cluster's own nodes."""
    cluster.capacity.ready()
    return [kind for kind in sorted(cluster.capacity.total) if own_pool(cluster, kind).fullest]


def whole_block(cluster: Cluster, gpu_type: str, grid: Grid) -> int:
    """The widest promise where nodes are of several sizes: what one of them holds whole."""
    return min(block_of(own_pool(cluster, gpu_type)), max(grid.capacity))
