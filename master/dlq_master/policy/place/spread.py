"""Any GPUs anywhere, the leftovers of busy nodes first, so that whole nodes stay whole."""

from __future__ import annotations

from collections.abc import Iterable

from dlq_master.model.nodes.free_gpus import Part, Parts, Pool, lowest
from dlq_master.model.resources import Shape, indices
from dlq_master.policy.place.consolidate import unless_exact
from dlq_master.policy.place.placement import Placement


@unless_exact
def find(pool: Pool, shape: Shape) -> Parts | None:
    """An explicit number of nodes is honoured; without one the width may be split at will."""
    return leftovers(pool, shape.gpus)


def leftovers(pool: Pool, gpus: int) -> Parts | None:
    """`find` among GPUs that may all be had, and are enough."""
    return gathered(pool, gpus, pool.buckets[1:])


def gathered(pool: Pool, gpus: int, buckets: Iterable[int]) -> Parts | None:
    """All that nodes of these buckets have, in this order, until it is enough."""
    parts: list[Part] = []
    for bucket in buckets:
        for node in indices(bucket):
            mask = pool.masks[node]
            taken = min(gpus, mask.bit_count())
            parts.append(Part(node, lowest(mask, taken)))
            gpus -= taken
            if not gpus:
                return tuple(sorted(parts))
    return None


SPREAD = Placement("spread", find, splits=True)


def find_by_count(pool: Pool, shape: Shape) -> Parts | None:
    """GPU counting only, as the reference simulators do: nodes do not matter, the emptiest go
    first. Real GPUs, so that a plan stays checkable; an explicit number of nodes is ignored.
    """
    if shape.avoid or shape.traits:
        pool = pool.allowed(shape)
    if pool.total < shape.gpus:
        return None
    return gathered(pool, shape.gpus, reversed(pool.buckets[1:]))


COUNT = Placement("count", find_by_count, counts_only=True, splits=True)
