"""Announced absences: for a while the ranks of a node hold out longer without their agent.

The order is what makes it safe. Longer: first the master has it on disk and reclaims later, then
the agent tells the shims. Shorter: first the agent tells the shims and says so, then the master
believes it. Until then `Node.hold_extension_s` is the longest hold that any shim there may still
count with.

When the agent restarts, the notice comes again with its welcome, for all ranks. When the master
restarts, the notice is in the node's row. While the line is silent, no job of that node is
reclaimed before hold + extension. It ends by itself when the time is over by the master's clock, or
when the agent reports that it is back. An absent agent hears of it when it returns.
"""

from dlq_common.errors import IllegalTransition, InvalidRequest
from dlq_common.text.units import format_span
from dlq_master.control.loop.once import Done, once
from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli import AnnounceMaintenance, Maintenance
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes import node_steps as on_node
from dlq_master.model.nodes.node import Node, NodeFlag


def _standing(turn: Turn, ask: AnnounceMaintenance, _word: str) -> Maintenance:
    return standing(turn, turn.node(ask.node_id))


@once(_standing)
def announce(turn: Turn, ask: AnnounceMaintenance) -> Maintenance | Done[Maintenance]:
    """Let the node's ranks hold out longer, from now on and up to the given time; 0 ends it."""
    node = turn.node(ask.node_id)
    if ask.maintenance_s:
        _check(turn, ask)
        event = on_node.MaintenanceAnnounced(maintenance_s=ask.maintenance_s)
        node = turn.step_node(ask.node_id, event, actor=ask.caller.actor)
    elif NodeFlag.MAINTENANCE in node.flags:
        node = _end(turn, ask.node_id, ask.caller.actor, "its agent is back")
    else:
        return standing(turn, node)
    return Done(standing(turn, node), ask.node_id)


def standing(turn: Turn, node: Node) -> Maintenance:
    """How things stand with a node's announced absence."""
    end_s = node.maintenance_end_s
    attempts = [
        turn.state.cluster.attempts[k] for k in turn.state.cluster.attempts_on(node.node_id)
    ]
    told = turn.state.nodes.holds_sent.get(node.node_id) == node.hold_revision
    return Maintenance(
        left_s=0.0 if end_s is None else max(0.0, end_s - turn.now_s),
        in_force=told,
        rank_count=len(attempts),
        hold_s=min((it.lease.hold_s + node.maintenance_s for it in attempts), default=None),
    )


def told(turn: Turn, node_id: NodeId, revision: int) -> None:
    """A heartbeat says which word on holds all ranks of the node have."""
    turn.state.nodes.holds_sent[node_id] = revision
    node = turn.state.cluster.nodes[node_id]
    if revision == node.hold_revision and node.hold_extension_s != node.maintenance_s:
        turn.step_node(node_id, on_node.HoldsConfirmed(), actor=f"node:{node_id}")


def end_due(turn: Turn) -> None:
    """Once a second: absences whose time is over."""
    cluster = turn.state.cluster
    for node in [cluster.nodes[node_id] for node_id in sorted(cluster.capacity.marked)]:
        if node.maintenance_end_s is not None and turn.now_s >= node.maintenance_end_s:
            _end(turn, node.node_id, "master", "the announced time is over")


def _check(turn: Turn, ask: AnnounceMaintenance) -> None:
    longest_s = float(turn.state.config.nodes.longest_maintenance)
    if not 0.0 < ask.maintenance_s <= longest_s:
        raise InvalidRequest(
            f"a maintenance may last {format_span(longest_s)} at most"
            " (nodes.longest_maintenance of the master)",
            field="maintenance_duration",
        )
    if ask.node_id not in turn.state.nodes.sessions:
        raise IllegalTransition(
            f"the agent of node {ask.node_id} is not connected: nobody can tell its jobs to hold "
            "out longer, and nothing was changed",
            hint="start the agent, or drain the node first: dlq admin node drain",
        )


def _end(turn: Turn, node_id: NodeId, actor: str, cause: str) -> Node:
    return turn.step_node(node_id, on_node.MaintenanceEnded(), actor=actor, cause=cause)
