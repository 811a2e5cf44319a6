"""The first steps of nearly every `find`: closed nodes, and a gang over an explicit number of
nodes.
"""

from __future__ import annotations

from functools import wraps
from itertools import islice

from dlq_master.model.nodes.free_gpus import Part, Parts, Pool, lowest
from dlq_master.model.resources import Shape
from dlq_master.policy.place.placement import Find


def unless_exact(find: Find) -> Find:
    """A `find` that honours an explicit number of nodes. All other shapes are left to the given
    one, and only with a pool of GPUs enough, all of which the shape may have."""

    @wraps(find)
    def found(pool: Pool, shape: Shape) -> Parts | None:
        gpus, nodes, avoid, traits = shape.gpus, shape.nodes, shape.avoid, shape.traits
        if avoid or traits:
            pool = pool.allowed(shape)
        if nodes is not None:
            return _same_on_each(pool, gpus // nodes, nodes)
        return find(pool, shape) if pool.total >= gpus else None

    return found


def _same_on_each(pool: Pool, gpus_per_node: int, nodes: int) -> Parts | None:
    """The tightest nodes that fit, lowest first."""
    chosen = list(islice(pool.nodes_with(gpus_per_node), nodes))
    if len(chosen) < nodes:
        return None
    masks = pool.masks
    return tuple(Part(node, lowest(masks[node], gpus_per_node)) for node in sorted(chosen))
