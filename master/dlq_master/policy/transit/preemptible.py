"""The capacity of one GPU type together with GPUs that running jobs hold."""

from __future__ import annotations

from dlq_master.model.nodes.free_gpus import Parts, Pool
from dlq_master.policy.place.allocation.type_capacity import TypeCapacity


class PreemptibleCapacity:
    """The capacity of a GPU type if some running jobs left.

    The truth is the capacity and the GPUs of jobs by node. The pool is brought up to date with them
    only for a lookup, node by node. So a plan pays for looking and not for changing. `at_once`:
    looks from what is free now, otherwise from what is free later.
    """

    __slots__ = ("_at_once", "_changed", "_held", "_pool", "_type_capacity")

    def __init__(self, type_capacity: TypeCapacity, *, at_once: bool) -> None:
        self._type_capacity = type_capacity
        self._at_once = at_once
        base = self.base
        self._pool = base.copy()
        self._held = [0] * len(base.masks)  # by running jobs that count here, by node
        self._changed: set[int] = set()  # nodes on which the pool is out of date
        type_capacity.followers.append(self._changed)

    @property
    def base(self) -> Pool:
        """The capacity without any leaving job."""
        return self._type_capacity.free if self._at_once else self._type_capacity.later

    def add(self, parts: Parts) -> None:
        """The holder of these GPUs counts."""
        for ordinal, mask in parts:
            self._held[ordinal] |= mask
            self._changed.add(ordinal)

    def drop(self, parts: Parts) -> None:
        """The holder of these GPUs stays after all, or has been told to leave."""
        for ordinal, mask in parts:
            self._held[ordinal] &= ~mask
            self._changed.add(ordinal)

    def pool(self) -> Pool:
        """Up to date until the next change."""
        if self._changed:
            self._pool.join(self._changed, self.base.masks, self._held)
            self._changed.clear()
        return self._pool
