"""Evidence against nodes: jobs that failed there at once, and which of them count. Pure values."""

from dataclasses import dataclass, field
from typing import NamedTuple

from dlq_master.model.ids import AttemptKey, NodeId


class Family(NamedTuple):
    """Jobs that are likely to fail for the same reason: of one user, with one name or in one
    array.
    """

    user: str
    name: str


class Failure(NamedTuple):
    """An attempt that its node failed: it never started, or ended at once on a GPU that ails."""

    time_s: float
    family: Family
    key: AttemptKey


@dataclass(slots=True)
class Suspicion:
    """The evidence against nodes. Never stored."""

    failures: dict[NodeId, list[Failure]] = field(default_factory=dict)
    charged: dict[NodeId, tuple[Failure, ...]] = field(default_factory=dict)  # closed for these
    capped: bool = False  # a node stayed open because enough are closed; told once


def charges(suspicion: Suspicion, node_id: NodeId) -> tuple[Failure, ...]:
    """The failures that count against a node, the latest of each family."""
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
    return tuple(counted.values())
