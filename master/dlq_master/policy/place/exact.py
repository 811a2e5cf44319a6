"""A gang over an explicit number of nodes: the same number of GPUs on each."""

from __future__ import annotations

from itertools import islice

from dlq_master.model.pool import Part, Parts, Pool, lowest


def find(pool: Pool, gpus_per_node: int, nodes: int) -> Parts | None:
    """The tightest nodes that fit, lowest first."""
    chosen = list(islice(pool.nodes_with(gpus_per_node), nodes))
    if len(chosen) < nodes:
        return None
    masks = pool.masks
    return tuple(Part(node, lowest(masks[node], gpus_per_node)) for node in sorted(chosen))
