"""GPUs that look free and are not: something runs on them for nobody, or they cannot be given back.

They take no work. The reports of agents are kept in the state and renewed by every hello. A node's
flag `cleaning` and its withheld GPUs follow from them. So does `disk_full`. When the agent
restarts, it reports again. When the master restarts, that flag is on disk. While the line is
silent, the last report stands.
"""

from collections.abc import Collection

from dlq_common.text.units import approximate_size
from dlq_master.control.loop.turn import Turn
from dlq_master.control.nodes.state import CLINGS, UnreleasedRank
from dlq_master.control.stimuli import ToldDisk
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.nodes import node_steps as on_node
from dlq_master.model.nodes.node import NodeFlag


def close_while_unclean(turn: Turn, node_id: NodeId) -> None:
    """GPUs on which something runs for nobody look free and are not: they take no work.

    A node is `cleaning` as a whole while it is not known which GPUs these are. It also is while the
    GPUs of an ended rank cannot be given back, since other GPUs may have the same fault.
    """
    _withhold(turn, node_id)
    why = _unclean(turn, node_id)
    flagged = NodeFlag.CLEANING in turn.state.cluster.nodes[node_id].flags
    if why and not flagged:
        told = on_node.FlagSet(flag=NodeFlag.CLEANING, reason=why, by=f"node:{node_id}")
        turn.step_node(node_id, told, cause=why)
    elif flagged and not why:
        turn.step_node(node_id, on_node.FlagCleared(flag=NodeFlag.CLEANING))


def take_disk(turn: Turn, node_id: NodeId, told: ToldDisk) -> None:
    """The report of a node about the disk of its agent's state.

    A node whose disk is full takes no new job, since a job could not start there. The agent sees to
    it that this does not flicker.
    """
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


def _withhold(turn: Turn, node_id: NodeId) -> None:
    strays = {who: on for who, on in turn.state.nodes.unowned.get(node_id, {}).items() if on}
    node = turn.state.cluster.nodes[node_id]
    left = {who: it for who, it in _clinging(turn, node_id).items() if it.ended and it.gpu_indexes}
    held = (*strays.values(), *(it.gpu_indexes for it in left.values()))
    indexes = frozenset(index for on in held for index in on)
    words = [f"{key} has ended, its GPUs are not free: {it.why}" for (key, _), it in left.items()]
    reason = "; ".join(filter(None, (_for_nobody(turn, strays), *words)))
    if (indexes, reason) != (node.strayed, node.stray_reason):
        turn.step_node(node_id, on_node.GpusStrayed(indexes=indexes, reason=reason), cause=reason)


def _for_nobody(turn: Turn, strays: Collection[tuple[AttemptKey, int]]) -> str:
    """The next steps for ranks that run for nobody, in words; empty when there are none."""
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
    """The reason that keeps a node from taking work, in words; empty: none."""
    strays = [who for who, on in turn.state.nodes.unowned.get(node_id, {}).items() if not on]
    if strays:
        return _for_nobody(turn, strays)
    late = {
        key: it.why
        for (key, _), it in _clinging(turn, node_id).items()
        if it.why.startswith(CLINGS) or not it.gpu_indexes
    }
    return "; ".join(f"{key}: {why}" for key, why in late.items())


def _clinging(turn: Turn, node_id: NodeId) -> dict[tuple[AttemptKey, int], UnreleasedRank]:
    return dict(sorted(turn.state.nodes.unreleased.get(node_id, {}).items()))
