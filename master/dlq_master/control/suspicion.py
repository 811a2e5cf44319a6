"""What speaks against nodes: jobs that failed there at once, and which of them count. Pure values."""

from dataclasses import dataclass, field
from typing import NamedTuple

from dlq_master.model.ids import AttemptKey, NodeId


class Family(NamedTuple):
    """Jobs that are likely to fail for the same reason: of one user, with one name or in one array."""

    user: str
    name: str


class Failure(NamedTuple):
    """An attempt that failed at once, or never started."""

    time_s: float
    family: Family
    key: AttemptKey
    of_node: bool  # it looks like the node's fault, and not like a mistake in a program


@dataclass(slots=True)
class Suspicion:
    """What speaks against nodes. Never stored."""

    failures: dict[NodeId, list[Failure]] = field(default_factory=dict)
    charged: dict[NodeId, tuple[Failure, ...]] = field(default_factory=dict)  # closed for these
    capped: bool = False  # a node stayed open because enough are closed; told once


def charges(suspicion: Suspicion, node_id: NodeId) -> tuple[Failure, ...]:
    """The failures that count against a node, the latest of each family. Programs of one user alone that
    ended by themselves count once: mistakes come in threes.
    """
    elsewhere = {
        failure.family
        for other, failures in suspicion.failures.items()
        if other != node_id
        for failure in failures
    }
    troubled = {family.user for family in elsewhere}
    counted: dict[Family | str, Failure] = {}
    for failure in suspicion.failures.get(node_id, ()):
        if failure.family not in elsewhere:
            user = failure.family.user
            counted[user if user in troubled else failure.family] = failure
    return weighed(tuple(counted.values()))


def weighed(found: tuple[Failure, ...]) -> tuple[Failure, ...]:
    """Those of them that count together: of one user alone only one that may be a mistake of his."""
    if len({failure.family.user for failure in found}) > 1:
        return found
    plain = [failure for failure in found if not failure.of_node]
    return (*(failure for failure in found if failure.of_node), *plain[-1:])
