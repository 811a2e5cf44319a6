"""The cluster's own nodes, and others: promises use its own GPUs alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from dlq_master.model.ids import NodeId
from dlq_master.model.nodes.node import Node, NodeFlag, NodePool
from dlq_master.model.resources import Shape, only_gpus
from dlq_master.model.traits import has_all


class OwnGpus:
    """Kept up to date node by node. `home`: of its own types the one with the most GPUs, "" while
    there is none.
    """

    __slots__ = ("_by_type", "foreign", "home")

    def __init__(self) -> None:
        self._by_type: Counter[str] = Counter()
        self.foreign: tuple[NodeId, ...] = ()  # nodes of other pools, and lent ones, sorted
        self.home = ""

    @property
    def gpus(self) -> Mapping[str, int]:
        """How many there are of each type."""
        return self._by_type

    @property
    def types(self) -> int:
        return len(self._by_type)

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


def could_hold(nodes: Iterable[Node], shape: Shape) -> bool:
    """Whether the own nodes, if all were free, have GPUs enough for this shape. O(nodes)."""
    sizes: dict[str, list[int]] = {}
    for node in nodes:
        if is_own(node) and (shape.traits is None or has_all(node, shape.traits)):
            for kind, mask in node.masks().items():
                if shape.may_be(kind):
                    sizes.setdefault("" if shape.mixed else kind, []).append(mask.bit_count())
    if shape.nodes is None:
        return any(sum(found) >= shape.gpus for found in sizes.values())
    each = shape.gpus // shape.nodes
    return any(sum(size >= each for size in found) >= shape.nodes for found in sizes.values())


def _own(node: Node | None) -> Counter[str]:
    if node is None or not is_own(node):
        return Counter()
    return Counter({kind: mask.bit_count() for kind, mask in only_gpus(node.masks()).items()})


def _foreign(node: Node | None) -> set[NodeId]:
    return set() if node is None or is_own(node) else {node.node_id}
