"""The agents that have spoken for nodes: this part of the state, and how it is stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from dlq_master.control.stimuli.nodes import AgentInstance
from dlq_master.model.ids import NodeId

META = "agent:"  # key of meta, before the node's id


@dataclass(slots=True)
class Instances:
    """`heard`: the agent that opened the last session. `known`: agents whose memory accounts for
    everything placed there.
    """

    heard: dict[NodeId, AgentInstance] = field(default_factory=dict)
    known: dict[NodeId, AgentInstance] = field(default_factory=dict)
    refused: dict[NodeId, AgentInstance] = field(default_factory=dict)  # and not yet told
    told: dict[NodeId, str] = field(default_factory=dict)  # whose refusal is in the journal


def restore(instances: Instances, meta: Mapping[str, str]) -> None:
    """The row that `instances.remember` has stored."""
    for key, stored in meta.items():
        if key.startswith(META) and stored:
            heard, known = json.loads(stored)
            node_id = NodeId(key.removeprefix(META))
            instances.heard[node_id] = AgentInstance(*heard)
            instances.known[node_id] = AgentInstance(*known)
