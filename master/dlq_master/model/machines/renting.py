"""Rented machines as a policy sees them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf
from typing import NamedTuple

from dlq_master.model.ids import NodeId
from dlq_master.model.machines.rented import Machine, MachineState
from dlq_master.model.nodes.node import Node


class RentingView(NamedTuple):
    """The machines that boot or are up, by name, and what more may be rented now.

    `joined`: the nodes whose agents are connected. `left`: by pool, how many more machines.
    `spare_per_hour`, `spare`: the most that more machines may cost in an hour, and in all.
    """

    here: Mapping[str, Machine]
    joined: Collection[NodeId]
    left: Mapping[str, int]
    spare_per_hour: float
    spare: float

    def takes_work(self, nodes: Mapping[NodeId, Node], name: str) -> bool:
        """Whether jobs may start on the machine now."""
        machine = self.here.get(name)
        if machine is None or machine.state is not MachineState.UP:
            return False
        node = nodes.get(machine.node_id)
        return node is not None and node.takes_work and node.node_id in self.joined


NOTHING_RENTED = RentingView({}, (), {}, inf, inf)
