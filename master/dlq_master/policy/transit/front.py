"""GPUs of one type that running jobs hold: the rest if some leave, and the fewest that have to."""

from __future__ import annotations

from collections.abc import Iterable

from dlq_master.model.ids import JobId
from dlq_master.model.nodes.free_gpus import Part, Parts, Pool, lowest, make_part, up_to
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
            held, barred = self._held, self._type_capacity.barred
            if barred:
                held = [mask & ~barred.get(node, 0) for node, mask in enumerate(held)]
            self._pool.join(self._changed, self.base.masks, held)
            self._changed.clear()
        return self._pool


class Front:
    """The capacity of one GPU type with the GPUs that victims hold of it."""

    __slots__ = ("everybody", "named", "named_on", "type_capacity")

    def __init__(self, type_capacity: TypeCapacity, *, at_once: bool) -> None:
        self.type_capacity = type_capacity
        self.named = PreemptibleCapacity(
            type_capacity, at_once=at_once
        )  # if all that are named leave
        self.everybody: PreemptibleCapacity | None = (
            None  # if all leave that can be named; made when needed
        )
        self.named_on: dict[int, dict[JobId, int]] = {}  # node -> the named there, in their order

    def holders(self, parts: Parts) -> Iterable[JobId]:
        """The named that hold any of these GPUs."""
        found: dict[JobId, None] = {}
        for ordinal, mask in parts:
            for job_id, held in self.named_on.get(ordinal, _NOBODY).items():
                if held & mask:
                    found[job_id] = None
        return found

    def sparing(self, part: Part) -> Part:
        """As many GPUs of the same node: free ones first, then those of the fewest victims."""
        ordinal, wanted = part
        gpus = wanted.bit_count()
        left = self.named.base.masks[ordinal]
        taken = up_to(left, gpus)
        gpus -= taken.bit_count()
        barred = self.type_capacity.barred.get(ordinal, 0)
        offers = [mask & ~barred for mask in self.named_on.get(ordinal, _NOBODY).values()]
        if len(offers) == 1:
            return make_part((ordinal, taken | lowest(offers[0], gpus)))
        for place in must_leave([offer.bit_count() for offer in offers], gpus):
            offered = up_to(offers[place], gpus)
            taken |= offered
            gpus -= offered.bit_count()
        return make_part((ordinal, taken))


def must_leave(widths: list[int], gpus: int) -> list[int]:
    """The victims of these (the lowest ranked first) that leave so that `gpus` fall free.

    Every victim that can stay, stays, the highest ranked before the others.
    """
    spare = sum(widths) - gpus
    leaving = []
    for place in reversed(range(len(widths))):
        if widths[place] <= spare:
            spare -= widths[place]
        else:
            leaving.append(place)
    return leaving[::-1]


_NOBODY: dict[JobId, int] = {}
