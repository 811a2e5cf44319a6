"""The rest of each node while a batch is placed, the greedy choices, and quasi-consolidation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlq_master.policy.place.packing.joint import (
    Arrangement,
    BatchMember,
    Joint,
    Spots,
    by_potential,
    total_reward,
)
from dlq_master.policy.place.packing.partitions import Partition


class Spare:
    """Nodes by what they have left. The same choices always name the same nodes, the lowest
    first.
    """

    def __init__(self, free: Sequence[int]) -> None:
        self._nodes: list[set[int]] = [set() for _ in range(max(free, default=0) + 1)]
        for node, left in enumerate(free):
            self._nodes[left].add(node)

    def place(self, parts: Iterable[int]) -> Spots | None:
        """Each part on the tightest node that holds it, all on nodes of their own; None: they do
        not fit so, and nothing is taken."""
        taken: list[tuple[int, int, int]] = []
        for part in parts:
            left = self._tightest(part)
            if left is None:
                self._put(taken, back=True)
                return None
            taken.append((self._pop(left), left, part))
        return self._put(taken)

    def gather(self, gpus: int) -> Spots | None:
        """On as few nodes as can be had: the emptiest whole, the rest on the tightest; None: not
        enough is left."""
        taken: list[tuple[int, int, int]] = []
        while gpus:
            left = self._tightest(gpus)
            if left is None:
                left = self._largest()
                if left is None:
                    self._put(taken, back=True)
                    return None
            part = min(left, gpus)
            taken.append((self._pop(left), left, part))
            gpus -= part
        return self._put(taken)

    def _tightest(self, gpus: int) -> int | None:
        return next((n for n in range(gpus, len(self._nodes)) if self._nodes[n]), None)

    def _largest(self) -> int | None:
        return next((n for n in range(len(self._nodes) - 1, 0, -1) if self._nodes[n]), None)

    def _pop(self, left: int) -> int:
        node = min(self._nodes[left])
        self._nodes[left].remove(node)
        return node

    def _put(self, taken: list[tuple[int, int, int]], *, back: bool = False) -> Spots:
        for node, left, part in taken:
            self._nodes[left if back else left - part].add(node)
        return tuple(sorted((node, part) for node, _, part in taken))


def arranged(
    joint: Joint, enumerated: dict[int, Partition], order: Sequence[int], bound: float, how: str
) -> Arrangement:
    """The enumerated jobs cut as told, then the others in this order on as few nodes as can be had
    *on what is then left* (Algorithm 1 prints the two the other way round)."""
    spare = Spare(joint.free)
    spots: list[Spots] = [()] * len(joint.members)
    for at in order:
        cut = enumerated.get(at)
        found = spare.gather(joint.members[at].gpus) if cut is None else spare.place(cut)
        if found is None:
            raise ValueError(f"member {at} does not fit: {joint.members[at]}, cut {cut}")
        spots[at] = found
    return Arrangement(tuple(spots), total_reward(joint.members, spots), bound, how)


def quasi_consolidate(joint: Joint) -> Arrangement:
    """Each job in turn, the one that could lose most first: together where possible, otherwise on
    as few nodes as are left. Raises ValueError if they ask for more than is free.
    """
    joint.check()
    return arranged(joint, {}, by_potential(joint.members), joint.most, "quasi-consolidation")


def largest_first(members: Sequence[BatchMember]) -> list[int]:
    """The order in which whole batches of powers of two always fit."""
    return sorted(range(len(members)), key=lambda at: (-members[at].gpus, at))
