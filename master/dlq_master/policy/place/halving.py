"""Chronus' placement of guaranteed jobs: rounded up, and placed by halving nodes (Proposition 1).

A job gets room for RoundUp of its GPUs on as few nodes as its width could ever need, or waits. On
nodes that all have the same power of two of GPUs, jobs that start on empty nodes always fit in any
order. The condition is that together, rounded up, they ask for no more than these have. The GPUs
added by rounding stay free for others.

Of other nodes the proposition does not hold: two with 6 GPUs have no room for 4 + 4 + 4. There
nothing is rounded, and whether the jobs that start together fit is decided exactly
(`place.class_packing`).
"""

from __future__ import annotations

from dlq_master.model.nodes.free_gpus import Part, Parts, Pool, lowest, make_part
from dlq_master.model.resources import Shape, indices
from dlq_master.policy.place import consolidate
from dlq_master.policy.place.consolidate import unless_exact
from dlq_master.policy.place.packing.joint import halves, round_up, tightest_block
from dlq_master.policy.place.placement import Placement


@unless_exact
def find(pool: Pool, shape: Shape) -> Parts | None:
    """A block of a node, or whole nodes; None also when only rounding up makes it too wide."""
    size = halves(pool)
    if size is None:
        return consolidate.few_nodes(pool, shape.gpus)
    gpus, room = shape.gpus, round_up(shape.gpus, size)
    if room >= size:
        return _whole(pool, gpus, size)
    left = tightest_block((n for n, bucket in enumerate(pool.buckets) if bucket), room)
    if left is None:
        return None
    node = next(indices(pool.buckets[left]))
    return (make_part((node, lowest(pool.masks[node], gpus))),)


def room(pool: Pool, shape: Shape) -> int:
    """The GPUs that it takes room of."""
    size = halves(pool)
    return shape.gpus if size is None or shape.nodes is not None else round_up(shape.gpus, size)


def _whole(pool: Pool, gpus: int, size: int) -> Parts | None:
    """All of as many nodes as it needs, but of the last only what is left to take."""
    count = -(-gpus // size)
    if len(pool.buckets) <= size or pool.buckets[size].bit_count() < count:
        return None
    parts: list[Part] = []
    for node in indices(pool.buckets[size]):
        parts.append(make_part((node, lowest(pool.masks[node], min(gpus, size)))))
        gpus -= size
        if gpus <= 0:
            break
    return tuple(parts)


HALVING = Placement("halving", find, room=room, repacks=True)
