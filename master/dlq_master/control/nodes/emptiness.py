"""Whether a node is empty, by the report of its devices, not by its agent's belief about its
jobs.
"""

from collections.abc import Iterable

from dlq_master.control.loop.turn import Turn
from dlq_master.control.stimuli.loans import Reading
from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.node import Node, NodeFlag, NodeState

GIB = 1024**3


def obstacle(turn: Turn, node: Node) -> str:
    """Why its devices need not be asked yet; empty: nothing speaks against its being empty."""
    here = turn.state.cluster.attempts_on(node.node_id)
    if here:
        return f"{', '.join(map(str, here))} {'has' if len(here) == 1 else 'have'} not left"
    if node.state is not NodeState.UP or node.node_id not in turn.state.nodes.sessions:
        return "its agent is silent"
    if node.strayed:
        return node.stray_reason
    note = node.note(NodeFlag.CLEANING)
    return "" if note is None else note.reason


def ask(turn: Turn, node_id: NodeId) -> None:
    """Have its agent asked what is on its GPUs, once the turn is on disk, and until it has
    answered.
    """
    loans, session_id = turn.state.loans, turn.state.nodes.sessions[node_id]
    number, asked_in = loans.asked.get(node_id, (0, 0))
    if asked_in != session_id:
        number = loans.next_number
        loans.next_number += 1
    loans.asked[node_id] = (number, session_id)
    loans.words.setdefault(node_id, "its devices have not said yet that they are empty")
    turn.looks[node_id] = number


def in_use(node: Node, readings: Iterable[Reading], free_below_bytes: int) -> str:
    """The programs on its GPUs, in words; empty: none."""
    told = {one.gpu: one for one in readings}
    words = []
    for gpu in node.gpus:
        one = told.get(gpu.index)
        if one is None:
            words.append(f"GPU {gpu.index} does not say")
        elif one.processes or one.used_memory_bytes >= free_below_bytes:
            used = f"{one.used_memory_bytes / GIB:.1f} GiB in use"
            words.append(f"GPU {gpu.index}: {used}, processes: {one.processes}")
    return "; ".join(words)
