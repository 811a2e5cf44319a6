"""The agent that speaks for a node: one process at a time, and whether it still has its memory.

A certificate can be copied. While one process is heard within the TTL, another one is refused. Two
exceptions prove that the first is gone. A process holds the lock of the same place. Or the first
ran on the master's own machine, as in a box of one machine, and that has booted since. The last
accepted one is stored, so that a copy cannot slip in while the master restarts. An agent of before,
which says nothing of itself, is taken as it was: at any time, with an unbroken memory.
"""

from __future__ import annotations

import json

from dlq_common.errors import IllegalTransition
from dlq_master.control.loop.turn import Turn
from dlq_master.control.nodes.state import META, MasterBoots
from dlq_master.control.stimuli.nodes import AgentInstance, OpenSession
from dlq_master.model.ids import NodeId


def check(turn: Turn, ask: OpenSession) -> None:
    """Raises IllegalTransition for a second agent of a node whose first was heard within the
    TTL.
    """
    state, new = turn.state, ask.agent
    holder = state.nodes.instances.heard.get(ask.node_id)
    contact_s = state.nodes.contacts.get(ask.node_id)
    if new is None or holder is None or contact_s is None:
        return
    if new.process_id == holder.process_id or new.place == holder.place:
        return
    if _has_booted(state.nodes.instances.boots, holder, new):
        return
    silent_s = turn.now_s - contact_s
    if silent_s >= state.terms.ttl_s:
        return
    state.nodes.instances.refused[ask.node_id] = new
    raise IllegalTransition(
        f"another agent speaks for node {ask.node_id}: it was heard {silent_s:.0f} s ago. If this "
        "state directory is a copy, remove it and join anew (dlq-nodeagent join TOKEN). If the "
        f"other agent is gone, wait: this one is accepted {state.terms.ttl_s:.0f} s after its last "
        "word",
        id=ask.node_id,
        state="held",
    )


def _has_booted(boots: MasterBoots, holder: AgentInstance, new: AgentInstance) -> bool:
    """Whether the machine of the first, which was the former master's, has booted, and is ours now.
    The first ended with its boot then.

    Nothing else will do. A copied disk in another machine may tell the same machine id. But it has
    a boot of its own, and shares none with this master.
    """
    return (
        bool(new.machine_id)
        and new.machine_id == holder.machine_id
        and new.memory_id == holder.memory_id
        and boots.former not in ("", boots.present)
        and _boot_of(holder) == boots.former
        and _boot_of(new) == boots.present
    )


def _boot_of(agent: AgentInstance) -> str:
    """The id of its kernel's boot: the last part of its place."""
    return agent.place.rpartition(":")[2].replace("-", "")


def is_same_machine(turn: Turn, ask: OpenSession) -> bool:
    """False only when both have said which machine they are, and differ."""
    known = turn.state.nodes.instances.known.get(ask.node_id)
    if known is None or ask.agent is None or not known.machine_id or not ask.agent.machine_id:
        return True
    return known.machine_id == ask.agent.machine_id


def remembers(turn: Turn, ask: OpenSession) -> bool:
    """Whether the agent's records go back to all that was ever placed on its node."""
    known = turn.state.nodes.instances.known.get(ask.node_id)
    return known is None or ask.agent is None or known.memory_id == ask.agent.memory_id


def note(turn: Turn, ask: OpenSession) -> None:
    """This one speaks for the node from now on."""
    instances = turn.state.nodes.instances
    before = instances.known.get(ask.node_id)
    if ask.agent is None:
        instances.heard.pop(ask.node_id, None)
        return
    instances.heard[ask.node_id] = ask.agent
    if not is_same_machine(turn, ask):
        turn.note(
            "node_machine_changed",
            node_id=ask.node_id,
            actor=f"node:{ask.node_id}",
            cause="its certificate is used on another machine than before",
        )
    elif before is not None and before.memory_id != ask.agent.memory_id:
        turn.note(
            "node_memory_lost",
            node_id=ask.node_id,
            actor=f"node:{ask.node_id}",
            cause="its agent has a new state directory",
        )


def remember(turn: Turn, node_id: NodeId) -> None:
    """Nothing that was placed there before is open any more, unless its memory is the same as
    before.
    """
    instances = turn.state.nodes.instances
    heard = instances.heard.get(node_id)
    if heard is None:
        return
    if not turn.state.nodes.unaccounted.get(node_id):
        instances.known[node_id] = heard
    known = instances.known.get(node_id, heard)
    turn.batch.meta[META + node_id] = json.dumps([heard, known])


def tell_refused(turn: Turn) -> None:
    """Once for each process that was refused; called once a second, since a refusal changes nothing
    else.
    """
    instances = turn.state.nodes.instances
    refused, instances.refused = instances.refused, {}
    for node_id, who in refused.items():
        if instances.told.get(node_id) != who.process_id:
            instances.told[node_id] = who.process_id
            turn.note(
                "node_instance_refused",
                node_id=node_id,
                actor=f"node:{node_id}",
                cause="a second agent uses its certificate while the first is heard",
            )


def forget(turn: Turn, node_id: NodeId) -> None:
    """The node is gone."""
    instances = turn.state.nodes.instances
    for each in (instances.heard, instances.known, instances.refused, instances.told):
        each.pop(node_id, None)
    turn.batch.meta[META + node_id] = ""
