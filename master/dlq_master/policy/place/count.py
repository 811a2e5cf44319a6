"""GPU counting only, as the reference simulators do: nodes do not matter, the emptiest go first."""

from __future__ import annotations

from dlq_master.model.pool import Part, Parts, Pool, lowest
from dlq_master.model.resources import Shape, indices
from dlq_master.policy.place.placement import Placement


def find(pool: Pool, shape: Shape) -> Parts | None:
    """Real GPUs, so that a plan stays checkable; an explicit number of nodes is ignored."""
    gpus = shape.gpus
    if shape.avoid or shape.traits:
        pool = pool.allowed(shape)
    if pool.total < gpus:
        return None
    parts: list[Part] = []
    for bucket in reversed(pool.buckets[1:]):
        for node in indices(bucket):
            mask = pool.masks[node]
            taken = min(gpus, mask.bit_count())
            parts.append(Part(node, lowest(mask, taken)))
            gpus -= taken
            if not gpus:
                return tuple(sorted(parts))
    return None


COUNT = Placement("count", find, counts_only=True, splits=True)
