"""Sums over nodes and their GPUs. A reader looks only at nodes that have changed meanwhile.

Each change of a node, or of an attempt there, marks the node. The sums are as of the last commit;
whether a held GPU does nothing is as of the last report of its agent. Nothing is stored: a master
that starts marks every node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.nodes.node import Node, NodeFlag, NodePool, NodeState

Key = tuple[str, ...]  # of a sum, and the values of its labels
_CLOSED = frozenset({NodeFlag.DRAINING, NodeFlag.CORDONED, NodeFlag.QUARANTINED})
_AWAY = frozenset({NodeFlag.MAINTENANCE, NodeFlag.RESERVED})


class NodeSeen(NamedTuple):
    """A node and its jobs. `busy`: one of them is there, perhaps without GPUs. `queues`: of the
    attempts that hold GPUs of it, by index.
    """

    node: Node
    busy: bool
    held: Mapping[int, AttemptKey]
    queues: Mapping[int, str]
    idle: Collection[int]  # GPUs that did nothing at the last report


class NodeTally:
    """The sums, by key. Touched in the loop's thread only."""

    def __init__(self, node_ids: Collection[NodeId]) -> None:
        """`node_ids`: all nodes so far."""
        self._touched: dict[NodeId, None] = dict.fromkeys(node_ids)
        self._parts: dict[NodeId, tuple[NodeSeen, Counter[Key]]] = {}
        self._sums: Counter[Key] = Counter()
        self.looked = 0  # nodes that all readers together have looked at

    def touched(self, node_id: NodeId) -> None:
        """It is new, gone, or no longer what it was."""
        self._touched[node_id] = None

    def sums(self, see: Callable[[NodeId], NodeSeen | None]) -> Mapping[Key, int]:
        """All sums above 0, after a look at the nodes that have changed. `see`: None of a node that
        is gone.
        """
        for node_id in self._touched:
            self.looked += 1
            before = self._parts.pop(node_id, None)
            if before is not None:
                self._sums.subtract(before[1])
            seen = see(node_id)
            if seen is not None:
                part = Counter(_keys(seen))
                self._parts[node_id] = seen, part
                self._sums.update(part)
        self._touched.clear()
        return {key: count for key, count in self._sums.items() if count}

    def seen(self) -> Iterator[NodeSeen]:
        """Each node as of the last sums, by name."""
        for node_id in sorted(self._parts):
            yield self._parts[node_id][0]


def _keys(seen: NodeSeen) -> Iterator[Key]:
    """One key for each thing that counts."""
    node = seen.node
    yield "node", node.state.value
    yield "use", _use(seen)
    if node.pool is NodePool.INFERENCE:
        yield "loan", _loan(node)
    if node.state is NodeState.DOWN:
        return
    yield "agent", node.agent_version
    for _ in {one.gpu for one in node.conditions}:
        yield ("unwell",)
    yield from _gpus(seen)


def _gpus(seen: NodeSeen) -> Iterator[Key]:
    node, free = seen.node, Counter[str]()
    for gpu in node.gpus:
        withheld = node.withheld >> gpu.index & 1
        state = "held" if gpu.index in seen.held else "withheld" if withheld else "free"
        yield "gpu", gpu.gpu_type, state
        free[gpu.gpu_type] += state == "free" and node.open
        if state == "held" and gpu.index in seen.idle:
            yield "idle", seen.queues.get(gpu.index, "")
    for gpu_type, count in free.items():
        yield "block", gpu_type, str(count)


def _use(seen: NodeSeen) -> str:
    """One word for how much of the node is in use, as Slurm tells it."""
    node = seen.node
    if node.state is not NodeState.UP:
        return "down" if node.state is not NodeState.SUSPECT else "unknown"
    if node.flags & _CLOSED:
        return "draining" if seen.busy else "drained"
    if node.flags & _AWAY:
        return "maintenance" if NodeFlag.MAINTENANCE in node.flags else "reserved"
    if not seen.busy:
        return "idle"
    return "allocated" if len(seen.held) >= len(node.gpus) > 0 else "mixed"


def _loan(node: Node) -> str:
    """Where a server of the inference side stands."""
    for flag in (NodeFlag.RECLAIMED, NodeFlag.LOANED, NodeFlag.LENDING):
        if flag in node.flags:
            return flag.value
    return "home"
