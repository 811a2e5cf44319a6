"""GPU counting only, as the reference simulators do: nodes do not matter, the emptiest go first."""

from __future__ import annotations

from dlq_master.model.nodes.free_gpus import Parts, Pool
from dlq_master.model.resources import Shape
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.place.spread import gathered


def find(pool: Pool, shape: Shape) -> Parts | None:
    """Real GPUs, so that a plan stays checkable; an explicit number of nodes is ignored."""
    if shape.avoid or shape.traits:
        pool = pool.allowed(shape)
    if pool.total < shape.gpus:
        return None
    return gathered(pool, shape.gpus, reversed(pool.buckets[1:]))


COUNT = Placement("count", find, counts_only=True, splits=True)
