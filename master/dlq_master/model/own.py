"""What is the cluster's own, and what others lend it: promises stand on its own GPUs alone."""

from __future__ import annotations

from collections import Counter

from dlq_master.model.ids import NodeId
from dlq_master.model.node import Node, NodeFlag


class OwnGpus:
    """Kept up to date node by node. `lent`: servers that others lend, sorted; `home`: of its own types the one
    with the most GPUs, "" while there is none."""

    __slots__ = ("_by_type", "home", "lent")

    def __init__(self) -> None:
        self._by_type: Counter[str] = Counter()
        self.home = ""
        self.lent: tuple[NodeId, ...] = ()

    @property
    def types(self) -> int:
        """How many types of GPUs are its own."""
        return len(self._by_type)

    def change(self, before: Node | None, node: Node | None) -> None:
        """A node has come (None before), is another now, or has gone (None)."""
        was, now = _own(before), _own(node)
        if was != now:
            self._by_type.subtract(was)
            self._by_type.update(now)
            self._by_type = +self._by_type
            self.home = max(sorted(self._by_type), key=lambda kind: self._by_type[kind], default="")
        if is_lent(before) != is_lent(node):
            known = before or node
            changed = {known.node_id} if known is not None else set()
            self.lent = tuple(sorted(changed.symmetric_difference(self.lent)))


def is_lent(node: Node | None) -> bool:
    """Whether it is a server that others lend."""
    return node is not None and NodeFlag.LOANED in node.flags


def _own(node: Node | None) -> Counter[str]:
    if node is None or is_lent(node):
        return Counter()
    return Counter({kind: mask.bit_count() for kind, mask in node.masks().items()})
