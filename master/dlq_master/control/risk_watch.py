"""When somebody has to look whether promises are still kept. Nothing of it is stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from dlq_master.model.drive import Happened
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.job import Job


class Risk(NamedTuple):
    """Since when a promise is known to be at risk and why, and the job as it was then."""

    since_s: float
    cause: str
    job: Job


@dataclass(slots=True)
class Risks:
    """`nodes`: those that have changed since the last look; `told`: whose owners know that it is at risk;
    `missed`: that this deadline has passed. `look_s`: when to look again though no node has changed; `slot`: that of the last look."""

    nodes: dict[NodeId, None] = field(default_factory=dict)
    told: dict[JobId, Risk] = field(default_factory=dict)
    missed: dict[JobId, int] = field(default_factory=dict)
    look_s: float = 0.0
    slot: int = -1

    def moved(self, happened: Iterable[Happened]) -> None:
        """These have moved: with a node, promises may fall."""
        for one in happened:
            if one.node_id is not None:
                self.nodes[one.node_id] = None
