"""Keeping GPUs for a promoted job that fits nowhere yet."""

from __future__ import annotations

from itertools import islice

from dlq_master.model.pool import Part, Parts, Pool, lowest
from dlq_master.model.resources import Shape, indices
from dlq_master.policy.space import Found, Space


def reserve(space: Space, shape: Shape) -> Found | None:
    """Withhold from lower ranks the free GPUs that bring this shape closest to fitting.

    Kept are the nodes with the most free GPUs among those that could ever hold a part of it. Nobody
    else gets GPUs there, so they only fill up, and the job starts as soon as work there has ended.
    Returns what is kept; None if no open node could hold a part of it.
    """
    for gpu_type in space.types_for(shape):
        opened = space.capacity.open[gpu_type]
        if space.placement.find(opened, shape) is not None:
            free = space.free[gpu_type]
            if space.placement.any_gpus(shape):
                width = Shape(min(shape.gpus, free.total), None, None)
                parts = space.placement.find(free, width) if width.gpus else ()
            else:
                parts = _fullest(free, opened, shape)
            kept = Found(gpu_type, parts or ())
            space.take(kept)
            return kept
    return None


def _fullest(free: Pool, opened: Pool, shape: Shape) -> Parts:
    nodes = shape.nodes or opened.fewest_nodes(shape.gpus)
    per_node = -(-shape.gpus // nodes)
    candidates = (
        node
        for bucket in reversed(free.buckets[1:])
        for node in indices(bucket)
        if opened.masks[node].bit_count() >= per_node
    )
    return tuple(
        Part(node, lowest(free.masks[node], min(per_node, free.masks[node].bit_count())))
        for node in islice(candidates, nodes)
    )
