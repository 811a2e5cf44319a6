"""GPUs that look free and are not: something runs on them for nobody, or they cannot be given back.

They take no work: what the agents say is kept in the state, told anew by every hello, and a node's
flag `cleaning` and its withheld GPUs follow from it.
"""

from collections.abc import Collection

from dlq_master.control.stimuli import ReportedPhase, ReportedRank
from dlq_master.control.turn import Turn
from dlq_master.model import node as on_node
from dlq_master.model.ids import AttemptKey, NodeId

# An agent that cannot give the GPUs of an ended rank back goes on saying STOPPING, and why.
_CLINGS = ("gpu_not_released", "unkillable", "look_timeout")


def close_while_unclean(turn: Turn, node_id: NodeId) -> None:
    """GPUs on which something runs for nobody look free and are not: they take no work.

    A node is `cleaning` as a whole while it is not known which GPUs these are, and while the GPUs of
    a rank that has ended cannot be given back (who knows what else cannot).
    """
    _withhold(turn, node_id)
    why = _unclean(turn, node_id)
    flagged = on_node.NodeFlag.CLEANING in turn.state.cluster.nodes[node_id].flags
    if why and not flagged:
        told = on_node.FlagSet(flag=on_node.NodeFlag.CLEANING, reason=why, by=f"node:{node_id}")
        turn.step_node(node_id, told, cause=why)
    elif flagged and not why:
        turn.step_node(node_id, on_node.FlagCleared(flag=on_node.NodeFlag.CLEANING))


def note_clinging(turn: Turn, node_id: NodeId, report: ReportedRank) -> None:
    """Whether the GPUs of a rank that has ended cannot be given back, as its agent says."""
    here = turn.state.clinging.setdefault(node_id, {})
    if report.phase is ReportedPhase.STOPPING and report.error.startswith(_CLINGS):
        here[report.key, report.node_rank] = report.error
    else:
        here.pop((report.key, report.node_rank), None)


def _withhold(turn: Turn, node_id: NodeId) -> None:
    strays = {who: on for who, on in turn.state.strays.get(node_id, {}).items() if on}
    node = turn.state.cluster.nodes[node_id]
    indexes = frozenset(index for on in strays.values() for index in on)
    reason = _for_nobody(turn, strays)
    if (indexes, reason) != (node.strayed, node.stray_reason):
        turn.step_node(node_id, on_node.GpusStrayed(indexes=indexes, reason=reason), cause=reason)


def _for_nobody(turn: Turn, strays: Collection[tuple[AttemptKey, int]]) -> str:
    """What is to become of ranks that run for nobody, in words; empty when there are none."""
    keys = sorted({key for key, _ in strays})
    orphans = [key for key in keys if turn.known_job(key.job_id) is None]
    ours = [key for key in keys if key not in orphans]
    words = []
    if ours:
        words.append(f"{_named(ours)} for nobody and must end")
    if orphans:
        words.append(f"{_named(orphans)} unknown to this master, until somebody ends it there")
    return "; ".join(words)


def _named(keys: list[AttemptKey]) -> str:
    return ", ".join(map(str, keys)) + (" runs" if len(keys) == 1 else " run")


def _unclean(turn: Turn, node_id: NodeId) -> str:
    """What keeps a node from taking work, in words; empty: nothing."""
    strays = [who for who, on in turn.state.strays.get(node_id, {}).items() if not on]
    if strays:
        return _for_nobody(turn, strays)
    clinging = turn.state.clinging.get(node_id, {})
    return "; ".join(f"{key}: {why}" for (key, _), why in sorted(clinging.items()))
