"""When somebody has to look whether promises are still kept. Nothing of it is stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dlq_master.model.drive import Happened
from dlq_master.model.ids import JobId, NodeId


@dataclass(slots=True)
class Risks:
    """`nodes`: those that have changed since the last look; `told`: whose owners know that it is at risk."""

    nodes: dict[NodeId, None] = field(default_factory=dict)
    told: set[JobId] = field(default_factory=set)

    def moved(self, happened: Iterable[Happened]) -> None:
        """These have moved: with a node, promises may fall."""
        for one in happened:
            if one.node_id is not None:
                self.nodes[one.node_id] = None
