"""What is the cluster's own, and what is not: promises stand on its own GPUs alone."""

from __future__ import annotations

from collections import Counter

from dlq_master.model.ids import NodeId
from dlq_master.model.node import Node, NodeFlag, NodePool


class OwnGpus:
    """Kept up to date node by node. `home`: of its own types the one with the most GPUs, "" while there is none."""

    __slots__ = ("_by_type", "foreign", "home")

    def __init__(self) -> None:
        self._by_type: Counter[str] = Counter()
        self.foreign: tuple[NodeId, ...] = ()  # nodes of other pools, and lent ones, sorted
        self.home = ""

    @property
    def types(self) -> int:
        """How many types of GPUs are its own."""
        return len(self._by_type)

    @property
    def others(self) -> tuple[NodeId, ...]:
        """The same; none where nothing is its own."""
        return self.foreign if self._by_type else ()

    def change(self, before: Node | None, node: Node | None) -> None:
        """A node has come (None before), is another now, or has gone (None)."""
        was, now = _own(before), _own(node)
        if was != now:
            self._by_type.subtract(was)
            self._by_type.update(now)
            self._by_type = +self._by_type
            self.home = max(sorted(self._by_type), key=lambda kind: self._by_type[kind], default="")
        gone, come = _foreign(before), _foreign(node)
        if gone != come:
            self.foreign = tuple(sorted({*self.foreign} - gone | come))


def is_own(node: Node) -> bool:
    """Whether it is there for training all the time."""
    return node.pool is NodePool.TRAINING and NodeFlag.LOANED not in node.flags


def _own(node: Node | None) -> Counter[str]:
    if node is None or not is_own(node):
        return Counter()
    return Counter({kind: mask.bit_count() for kind, mask in node.masks().items()})


def _foreign(node: Node | None) -> set[NodeId]:
    return set() if node is None or is_own(node) else {node.node_id}
