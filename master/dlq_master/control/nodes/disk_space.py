"""A node whose disk is full takes no new job, since a job could not start there.

The agent says so with its heartbeats, and when there is room again (it sees to it that this does
not flicker). When the agent restarts, it reports again. When the master restarts, the flag is on
disk. While the line is silent, the last report stands.
"""

from dlq_common.text.units import approximate_size
from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli import ToldDisk
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes import node_steps as on_node
from dlq_master.model.nodes.node import NodeFlag


def take(turn: Turn, node_id: NodeId, told: ToldDisk) -> None:
    """The report of a node about the disk of its agent's state."""
    flagged = NodeFlag.DISK_FULL in turn.state.cluster.nodes[node_id].flags
    if told.full == flagged:
        return
    actor = f"node:{node_id}"
    free = approximate_size(told.free_bytes)
    if not told.full:
        cleared = on_node.FlagCleared(flag=NodeFlag.DISK_FULL)
        turn.step_node(node_id, cleared, actor=actor, cause=f"{free} are free")
        return
    spare = approximate_size(told.spare_bytes)
    reason = f"{free} are free where its agent keeps its state, which wants {spare}"
    event = on_node.FlagSet(flag=NodeFlag.DISK_FULL, reason=reason, by=actor)
    turn.step_node(node_id, event, actor=actor, cause=reason)
