"""A promise that may not be kept is told so at once, not when the next slot is planned.

A node that is silent, lost, drained or cordoned takes GPUs from the plan. Whose slots then want more than
there is hears of it within a second (`promise_at_risk`). The next slot's plan finds other slots for it, or
gives the promise up (`promise_broken`). After a restart of the
master it is told again, if it is still so when the next node changes.
"""

from __future__ import annotations

from dlq_master.control.scheduling import look
from dlq_master.control.turn import Turn
from dlq_master.model.ids import NodeId
from dlq_master.model.node import NodeState


def watch(turn: Turn) -> None:
    """Once a second, and only after a node has changed."""
    state = turn.state
    rules, nodes = state.policy.promises, state.risks.nodes
    if not nodes:
        return
    state.risks.nodes = {}
    if rules is None or not state.cluster.promised:
        state.risks.told.clear()
        return
    from dlq_master.policy.promise.proof import at_risk

    found = at_risk(look(turn), rules)
    cause = f"GPUs that its plan counts on are gone: {_told(turn, nodes)}"
    for job_id in sorted(found - state.risks.told):
        turn.note("promise_at_risk", job_id=job_id, cause=cause)
    state.risks.told = found


def _told(turn: Turn, nodes: dict[NodeId, None]) -> str:
    """The nodes that have changed, and what they are now."""
    words = []
    for node_id in nodes:
        node = turn.state.cluster.nodes.get(node_id)
        if node is None:
            words.append(f"{node_id} was removed")
        else:
            flags = ", ".join(sorted(flag.value for flag in node.flags))
            up = node.state is NodeState.UP
            booked = up and not flags and node.windows
            what = f"reserved ({node.windows[0].reservation_id})" if booked else node.state.value
            words.append(f"{node_id} is {flags if up and flags else what}")
    return ", ".join(words)
