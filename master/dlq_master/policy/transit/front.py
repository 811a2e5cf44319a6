"""GPUs of one type that possible victims hold, and how many victims are needed."""

from __future__ import annotations

from collections.abc import Iterable

from dlq_master.model.ids import JobId
from dlq_master.model.nodes.free_gpus import Part, Parts, lowest, make_part, up_to
from dlq_master.policy.place.allocation.type_capacity import TypeCapacity
from dlq_master.policy.transit.preemptible import PreemptibleCapacity


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
        offers = [*self.named_on.get(ordinal, _NOBODY).values()]
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
