"""Any GPUs anywhere, the leftovers of busy nodes first, so that whole nodes stay whole."""

from __future__ import annotations

from dlq_master.model.pool import Part, Parts, Pool, lowest
from dlq_master.model.resources import Shape, indices
from dlq_master.policy.place import exact
from dlq_master.policy.place.placement import Placement


def find(pool: Pool, shape: Shape) -> Parts | None:
    """An explicit number of nodes is honoured; without one the width may be split at will."""
    gpus, nodes, _, avoid, traits, _ = shape
    if avoid or traits:
        pool = pool.allowed(shape)
    if nodes is not None:
        return exact.find(pool, gpus // nodes, nodes)
    if pool.total < gpus:
        return None
    parts: list[Part] = []
    for bucket in pool.buckets[1:]:
        for node in indices(bucket):
            mask = pool.masks[node]
            taken = min(gpus, mask.bit_count())
            parts.append(Part(node, lowest(mask, taken)))
            gpus -= taken
            if not gpus:
                return tuple(sorted(parts))
    return None


SPREAD = Placement("spread", find, splits=True)
