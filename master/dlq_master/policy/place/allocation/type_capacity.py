"""GPUs of one type as one plan sees them: free now, free later, and spoken for."""

from __future__ import annotations

from collections.abc import Mapping

from dlq_master.model.nodes.capacity import Capacity
from dlq_master.model.nodes.free_gpus import Part, Parts, Pool, make_part
from dlq_master.model.resources import Shape
from dlq_master.policy.place.placement import Placement


class TypeCapacity:
    """`free`: the free GPUs. `later`: the same, and what those leave who have to go. While nobody
    goes, they are one pool.

    The cluster's own pool is read until something is taken, and copied then: most plans start
    nothing or one job. A pool that is derived from these registers a set in `followers` and finds
    in it the nodes that have changed since it last looked.
    """

    __slots__ = ("_own", "_soon", "barred", "followers", "free", "later")

    def __init__(self, free: Pool) -> None:
        self.free = free
        self.later = free
        self.followers: list[set[int]] = []
        self.barred: dict[int, int] = {}  # given to nobody any more, also if others leave them
        self._own = False
        self._soon: Pool | None = None  # what `later` has beyond `free`; made when first asked for

    def take(self, parts: Parts) -> None:
        """These GPUs are spoken for, as far as they are here."""
        if self.free.total:
            (self.free if self._own else self._own_free()).take(parts)
        if self.later is not self.free:
            self.later.take(parts)
            if self._soon is not None:
                self._soon.take(parts)
        if self.followers:
            self._tell(parts)

    def bar(self, parts: Parts) -> None:
        """Nobody whose turn comes later gets these GPUs, be they free now or left by others."""
        for ordinal, mask in parts:
            self.barred[ordinal] = self.barred.get(ordinal, 0) | mask
        self.take(parts)

    def unbarred(self, parts: Parts) -> Parts:
        """Of these GPUs those that others may have."""
        if not self.barred:
            return parts
        barred = self.barred
        left = [make_part((node, mask & ~barred.get(node, 0))) for node, mask in parts]
        return tuple([part for part in left if part.mask])

    def give_free(self, parts: Parts) -> None:
        """Somebody leaves these GPUs at once."""
        parts = self.unbarred(parts)
        self._own_free().give(parts)
        if self.later is not self.free:
            self.later.give(parts)
        if self.followers:
            self._tell(parts)

    def give_later(self, parts: Parts) -> None:
        """Somebody will leave these GPUs."""
        parts = self.unbarred(parts)
        if self.later is self.free:
            self.later = self.free.copy()
        self.later.give(parts)
        if self._soon is not None:
            self._soon.give(parts)
        if self.followers:
            self._tell(parts)

    def find_later(self, placement: Placement, shape: Shape) -> Parts | None:
        """Where the shape fits later, as far as possible without GPUs that are free now."""
        later = self.later
        if later is self.free or later.total < shape.gpus:
            return None
        if self.free.total and placement.any_gpus(shape):
            return self._soonest(placement, shape)
        return placement.find(later, shape)

    def _soonest(self, placement: Placement, shape: Shape) -> Parts:
        if self._soon is None:
            self._soon = self.later.copy()
            self._soon.take(tuple([Part(*item) for item in enumerate(self.free.masks)]))
        gpus = shape.gpus
        soon = min(gpus, self._soon.total)
        masks: dict[int, int] = {}
        for pool, width in ((self._soon, soon), (self.free, gpus - soon)):
            part = shape._replace(gpus=width, nodes=None)
            parts = placement.find(pool, part) if width else ()
            for ordinal, mask in parts or ():
                masks[ordinal] = masks.get(ordinal, 0) | mask
        return tuple([Part(*item) for item in sorted(masks.items())])

    def _own_free(self) -> Pool:
        if not self._own:
            self._own = True
            alone = self.later is self.free
            self.free = self.free.copy()
            if alone:
                self.later = self.free
        return self.free

    def _tell(self, parts: Parts) -> None:
        for ordinal, _ in parts:
            for changed in self.followers:
                changed.add(ordinal)


def usable(capacity: Capacity, split: Mapping[str, Parts]) -> list[tuple[str, Parts]]:
    """GPUs by type without those of closed nodes and those that are withheld."""
    found = []
    for gpu_type, parts in split.items():
        opened = capacity.open[gpu_type].masks
        for ordinal, mask in parts:
            if mask & ~opened[ordinal]:
                rest = [make_part((node, held & opened[node])) for node, held in parts]
                parts = tuple([part for part in rest if part.mask])
                break
        if parts:
            found.append((gpu_type, parts))
    return found
