"""From the program's classes to nodes: the place of each job of the batch. The same solution, the
same nodes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from dlq_master.policy.place.packing.joint import Joint, Spots
from dlq_master.policy.place.packing.partitions import Partition
from dlq_master.policy.place.packing.spare import Spare, largest_first


def spots(
    joint: Joint, parts: Sequence[Partition], patterns: Mapping[int, Sequence[Partition]]
) -> list[Spots]:
    """Best fit if it gives these parts, since that keeps empty nodes whole for jobs to come.
    Otherwise the nodes are cut as the solution says.
    """
    return _tightly(joint, parts) or _as_cut(joint, parts, patterns)


def _tightly(joint: Joint, parts: Sequence[Partition]) -> list[Spots] | None:
    spare = Spare(joint.free)
    found: list[Spots] = [()] * len(parts)
    for at in largest_first(joint.members):
        placed = spare.place(parts[at])
        if placed is None:
            return None
        found[at] = placed
    return found


def _as_cut(
    joint: Joint, parts: Sequence[Partition], patterns: Mapping[int, Sequence[Partition]]
) -> list[Spots]:
    pieces = _pieces(joint.free, patterns)
    left = list(joint.free)
    held: list[Counter[int]] = [Counter() for _ in parts]
    for at, cut in enumerate(parts):
        for part in cut:
            if part > 1:
                node = pieces[part].pop(0)
                held[at][node] += part
                left[node] -= part
    for at, cut in enumerate(parts):
        for _ in range(cut.count(1)):
            node = _for_one(left, held[at])
            held[at][node] += 1
            left[node] -= 1
    return [tuple(sorted(mine.items())) for mine in held]


def _pieces(
    free: Sequence[int], patterns: Mapping[int, Sequence[Partition]]
) -> dict[int, list[int]]:
    """By size, the nodes that they are of."""
    found: dict[int, list[int]] = defaultdict(list)
    for left, cuts in sorted(patterns.items()):
        nodes = (node for node, has in enumerate(free) if has == left)
        for node, cut in zip(nodes, cuts, strict=False):
            for piece in cut:
                found[piece].append(node)
    return found


def _for_one(left: Sequence[int], held: Mapping[int, int]) -> int:
    """Where one more GPU is left: best beside what the job has, otherwise on the tightest node."""
    room = [node for node, has in enumerate(left) if has > 0]
    return min(room, key=lambda node: (node not in held, left[node], node))
