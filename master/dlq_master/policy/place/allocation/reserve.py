"""Keeping GPUs for a promoted job that fits nowhere yet."""

from __future__ import annotations

from itertools import islice

from dlq_master.model.nodes.free_gpus import Part, Parts, Pool, up_to
from dlq_master.model.resources import Shape, indices
from dlq_master.policy.place.placement import Placement


def closest(placement: Placement, free: Pool, opened: Pool, shape: Shape) -> Parts | None:
    """The free GPUs that bring this shape closest to fitting; withheld, they only become more.

    They are those of the nodes with the most free GPUs among all that could ever hold a part of it.
    No other job gets GPUs there, so the job starts as soon as work there has ended. None if the
    open nodes could not hold it, were they empty.
    """
    if shape.avoid or shape.traits:
        free, opened = free.allowed(shape), opened.allowed(shape)
    if placement.find(opened, shape) is None:
        return None
    if placement.any_gpus(shape):
        width = shape._replace(gpus=min(shape.gpus, free.total), nodes=None)
        return (placement.find(free, width) or ()) if width.gpus else ()
    return _fullest(free, opened, shape)


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
        Part(node, up_to(free.masks[node], per_node)) for node in islice(candidates, nodes)
    )
