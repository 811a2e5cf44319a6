"""Do jobs all fit, each on as few nodes as its width could ever need? Exactly, by classes of
nodes.
"""

from __future__ import annotations

from typing import NamedTuple

from dlq_master.policy.place.packing.joint import Joint, Spots
from dlq_master.policy.place.packing.spare import Spare, largest_first


class PackedClasses(NamedTuple):
    """`spots` of each member; None: there is no such placement, if that is `proven`, or none was
    found within the limits."""

    spots: tuple[Spots, ...] | None
    proven: bool = True


def pack(joint: Joint) -> PackedClasses:
    """The widest first where they fit tightest, and if that fails by the program of
    `place.pattern`.
    """
    if sum(member.gpus for member in joint.members) > sum(joint.free):
        return PackedClasses(None)
    found = widest_first(joint)
    if found is not None:
        return PackedClasses(found)
    from dlq_master.policy.place.packing import named, pattern

    solution = pattern.solve(joint, together=True)
    if solution is None:
        return PackedClasses(None, proven=False)
    if solution.parts is None:
        return PackedClasses(None, proven=solution.infeasible)
    return PackedClasses(tuple(named.spots(joint, solution.parts, solution.patterns)))


def widest_first(joint: Joint) -> tuple[Spots, ...] | None:
    """Each where it fits tightest; None: so they do not fit, otherwise they may."""
    spare = Spare(joint.free)
    spots: list[Spots] = [()] * len(joint.members)
    for at in largest_first(joint.members):
        member = joint.members[at]
        found = spare.gather(member.gpus)
        if found is None or len(found) > member.fewest:
            return None
        spots[at] = found
    return tuple(spots)
