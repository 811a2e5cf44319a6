"""GPUs as one plan sees them: what is free now, what will be soon, and what it has handed out."""

from __future__ import annotations

from typing import NamedTuple

from dlq_master.model.capacity import Capacity, Pools
from dlq_master.model.pool import Part, Parts
from dlq_master.model.resources import Allocation, Shape, Slot
from dlq_master.policy.place.placement import Placement


class Found(NamedTuple):
    """GPUs of one type."""

    gpu_type: str
    parts: Parts


def allocation(capacity: Capacity, found: Found) -> Allocation:
    """The parts with the names of their nodes; rank order is node order."""
    node_ids = capacity.node_ids
    return Allocation(tuple([Slot(node_ids[ordinal], mask) for ordinal, mask in found.parts]))


class Space:
    """The pools as far as this plan has used them; taking from it does not change the cluster.

    `soon` holds what is being saved or released (or, in a plan that takes work away, what its
    victims leave); `union` is free + soon and exists only when anything is soon. The cluster's own
    pools are read until something is taken, and copied then: most plans start nothing or one job.
    """

    __slots__ = ("_own", "capacity", "free", "free_total", "placement", "soon", "union")

    def __init__(self, capacity: Capacity, placement: Placement) -> None:
        capacity.ready()
        self.capacity = capacity
        self.placement = placement
        self.free: Pools = capacity.free
        self.free_total = capacity.free_gpus
        self._own = False
        self.soon: Pools = {}
        self.union: Pools = {}
        if capacity.soon:
            for gpu_type, parts in capacity.soon_parts().items():
                self.give_soon(Found(gpu_type, parts))

    def types_for(self, shape: Shape) -> list[str]:
        """GPU types that may hold the shape, in a fixed order; a job never mixes types."""
        if shape.gpu_type is None:
            return list(self.free)
        return [shape.gpu_type] if shape.gpu_type in self.free else []

    def most_left(self) -> int:
        """No shape wider than this fits, now or soon."""
        if not self.union:
            if len(self.free) == 1:
                return self.free_total
            return max((pool.total for pool in self.free.values()), default=0)
        return max(self.union.get(name, pool).total for name, pool in self.free.items())

    def find_free(self, shape: Shape) -> Found | None:
        """GPUs that are free now."""
        find = self.placement.find
        wanted = shape.gpu_type
        for gpu_type, pool in self.free.items():
            if wanted is None or wanted == gpu_type:
                parts = find(pool, shape)
                if parts is not None:
                    return Found(gpu_type, parts)
        return None

    def find_soon(self, shape: Shape) -> Found | None:
        """GPUs that will be free soon, as far as possible without those that are free now."""
        for gpu_type in self.types_for(shape):
            union = self.union.get(gpu_type)
            if union is None:
                continue
            if self.placement.any_gpus(shape):
                parts = self._soonest(gpu_type, shape)
            else:
                parts = self.placement.find(union, shape)
            if parts is not None:
                return Found(gpu_type, parts)
        return None

    def take(self, found: Found) -> None:
        """These GPUs are spoken for in this plan, whether free or soon."""
        gpu_type, parts = found
        free = self._own_free()[gpu_type]
        before = free.total
        free.take(parts)
        self.free_total += free.total - before
        if gpu_type in self.union:
            self.union[gpu_type].take(parts)
            self.soon[gpu_type].take(parts)

    def give_soon(self, found: Found) -> None:
        """These GPUs will be released."""
        gpu_type, parts = found
        if gpu_type not in self.union:
            free = self.free[gpu_type]
            self.union[gpu_type] = free.copy()
            self.soon[gpu_type] = free.emptied()
        self.union[gpu_type].give(parts)
        self.soon[gpu_type].give(parts)

    def give_free(self, found: Found) -> None:
        """These GPUs are released at once."""
        gpu_type, parts = found
        self._own_free()[gpu_type].give(parts)
        self.free_total += sum(part.mask.bit_count() for part in parts)
        if gpu_type in self.union:
            self.union[gpu_type].give(parts)

    def _own_free(self) -> Pools:
        if not self._own:
            self._own = True
            self.free = {gpu_type: pool.copy() for gpu_type, pool in self.free.items()}
        return self.free

    def held_by(self, allocation: Allocation) -> list[Found]:
        """The allocation in pool terms."""
        return [Found(*item) for item in self.capacity.parts(allocation).items()]

    def _soonest(self, gpu_type: str, shape: Shape) -> Parts | None:
        soon, free = self.soon[gpu_type], self.free[gpu_type]
        if soon.total + free.total < shape.gpus:
            return None
        first = min(shape.gpus, soon.total)
        masks: dict[int, int] = {}
        for pool, gpus in ((soon, first), (free, shape.gpus - first)):
            parts = self.placement.find(pool, Shape(gpus, None, None)) if gpus else ()
            for ordinal, mask in parts or ():
                masks[ordinal] = masks.get(ordinal, 0) | mask
        return tuple(Part(ordinal, mask) for ordinal, mask in sorted(masks.items()))
