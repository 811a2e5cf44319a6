"""GPUs that exist, are open and are free: pools per GPU type, derived from nodes and claims.

The job cores of nodes are one pool more, of the type CORE_TYPE.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.nodes.free_gpus import Part, Parts, Pool, make_part
from dlq_master.model.nodes.node import Node, NodeState
from dlq_master.model.resources import CORE_TYPE, Allocation, only_gpus
from dlq_master.model.traits import Traits

Pools = dict[str, Pool]

_ALL_ANEW = 4  # more than one of so many nodes: it is cheaper to place all of them
_PARTS_KEPT = 4096  # allocations; more than run at once on all but the largest clusters
_HELD_KEPT = 4096  # shapes of the jobs of late


class _Home(NamedTuple):
    """Where a node's GPUs of one type are counted while they are free."""

    pool: Pool
    owned: int


class Capacity:
    """Free = open nodes' GPUs - claims of live attempts. Nothing here is stored on disk.

    Nodes are numbered in the order of their ids. A new or vanished node gets its place in the
    numbers when somebody reads next, and moves those behind it. Many at once rebuild the pools.
    Anything else changes only the node concerned.
    """

    __slots__ = (
        "_homes",
        "_masks",
        "_parts",
        "_traits",
        "_unplaced",
        "claims",
        "closed",
        "free",
        "free_devices",
        "held",
        "marked",
        "node_ids",
        "nodes",
        "open",
        "ordinals",
        "soon",
        "total",
    )

    def __init__(self) -> None:
        self.nodes: dict[NodeId, Node] = {}
        self.claims: dict[NodeId, dict[AttemptKey, int]] = {}  # who holds which GPUs of a node
        self.soon: dict[NodeId, int] = {}  # of those, being saved or released
        self.closed: set[NodeId] = set()  # nodes on which nothing new is placed
        self.marked: set[NodeId] = set()  # nodes that are not UP, or have flags
        self.node_ids: list[NodeId] = []
        self.ordinals: dict[NodeId, int] = {}
        self.free: Pools = {}
        self.open: Pools = {}  # GPUs of open nodes, claimed or not
        self.total: Pools = {}  # GPUs of all registered nodes
        self.free_devices = 0  # of all types, job cores too
        self._masks: dict[NodeId, Mapping[str, int]] = {}
        self._homes: dict[NodeId, tuple[_Home, ...]] = {}  # of open nodes
        # Of gangs: every boundary asks for all that run.
        self._parts: dict[Allocation, Mapping[str, Parts]] = {}
        self._traits = Traits({})
        self.held: set[Hashable] = set()
        """Shapes that all nodes together could hold, by the finder; until a node comes or goes."""
        # Nodes that came, went, or have other GPUs or traits, since the pools were read last.
        self._unplaced: dict[NodeId, None] = {}

    def put_node(self, node: Node) -> None:
        before = self.nodes.get(node.node_id)
        self.nodes[node.node_id] = node
        if node.open:
            self.closed.discard(node.node_id)
        else:
            self.closed.add(node.node_id)
        if node.flags or node.state is not NodeState.UP:
            self.marked.add(node.node_id)
        else:
            self.marked.discard(node.node_id)
        if before is None or others(before, node):
            self._masks[node.node_id] = node.masks()
            self.claims.setdefault(node.node_id, {})
            self._outdate(node.node_id)
        elif before.open != node.open or before.withheld != node.withheld:
            self._refresh(node.node_id)

    def remove_node(self, node_id: NodeId) -> None:
        """Forget a node; refused while a live attempt holds GPUs of it."""
        if self.claims.get(node_id):
            raise ValueError(f"node {node_id} is still held by {sorted(self.claims[node_id])}")
        del self.nodes[node_id], self.claims[node_id], self._masks[node_id]
        self.closed.discard(node_id)
        self.marked.discard(node_id)
        self._outdate(node_id)

    def claim(self, key: AttemptKey, allocation: Allocation, *, soon: bool) -> None:
        """The attempt holds these GPUs (`soon`: it has been told to leave)."""
        for node_id, mask in allocation.slots:
            self.claims.setdefault(node_id, {})[key] = mask
            homes = self._homes.get(node_id)
            if homes:
                ordinal = self.ordinals[node_id]
                for pool, _ in homes:
                    self.free_devices += pool.set(ordinal, pool.masks[ordinal] & ~mask)
        if soon:
            self.mark_soon(allocation, soon=True)

    def release(self, key: AttemptKey, allocation: Allocation, *, soon: bool) -> None:
        """The attempt is gone, its GPUs are free."""
        for node_id, mask in allocation.slots:
            del self.claims[node_id][key]
            homes = self._homes.get(node_id)
            if homes:
                ordinal = self.ordinals[node_id]
                for pool, owned in homes:
                    self.free_devices += pool.set(ordinal, pool.masks[ordinal] | owned & mask)
        if soon:
            self.mark_soon(allocation, soon=False)

    def mark_soon(self, allocation: Allocation, *, soon: bool) -> None:
        """The holder was told to leave, or its node fell silent meanwhile."""
        for node_id, mask in allocation.slots:
            if soon:
                self.soon[node_id] = self.soon.get(node_id, 0) | mask
            else:
                self._clear_soon(node_id, mask)

    def ready(self) -> None:
        """Bring the pools up to date; every reader of pools goes through here."""
        if self._unplaced:
            self._place()

    def note_held(self, what: Hashable) -> None:
        """All nodes together could hold this."""
        if len(self.held) >= _HELD_KEPT:
            self.held.clear()
        self.held.add(what)

    @property
    def free_gpus(self) -> int:
        """Without job cores."""
        cores = self.free.get(CORE_TYPE)
        return self.free_devices - (0 if cores is None else cores.total)

    @property
    def all_gpus(self) -> int:
        """GPUs of all registered nodes."""
        self.ready()
        return sum([pool.total for pool in only_gpus(self.total).values()])

    @property
    def gpu_types(self) -> list[str]:
        """The types of GPUs of all registered nodes, sorted."""
        self.ready()
        return sorted(only_gpus(self.total))

    def claimed(self, node_id: NodeId) -> int:
        mask = 0
        for held in self.claims.get(node_id, {}).values():
            mask |= held
        return mask

    def masks_of(self, node_id: NodeId) -> Mapping[str, int]:
        """GPU type -> bitmask of the node's GPUs of that type."""
        return self._masks[node_id]

    def parts(self, allocation: Allocation) -> Mapping[str, Parts]:
        """The allocation in pool terms, by GPU type. Nodes and GPUs that are gone are left out."""
        if self._unplaced:  # a beat may ask before any plan of a new master has
            self._place()
        slots = allocation.slots
        if len(slots) == 1:  # nearly all of them, and a boundary looks at every one
            node_id, mask = slots[0]
            masks = self._masks.get(node_id)
            if masks is not None and len(masks) == 1:
                ((gpu_type, owned),) = masks.items()
                held = owned & mask
                return {gpu_type: (make_part((self.ordinals[node_id], held)),)} if held else {}
        known = self._parts.get(allocation)
        if known is None:
            known = self._parts[allocation] = self._split(slots)
            if len(self._parts) > _PARTS_KEPT:
                del self._parts[next(iter(self._parts))]
        return known

    def _split(self, slots: Iterable[tuple[NodeId, int]]) -> Mapping[str, Parts]:
        split: dict[str, list[Part]] = {}
        for node_id, mask in slots:
            for gpu_type, owned in self._masks.get(node_id, {}).items():
                if owned & mask:
                    part = Part(self.ordinals[node_id], owned & mask)
                    split.setdefault(gpu_type, []).append(part)
        return {gpu_type: tuple(parts) for gpu_type, parts in split.items()}

    def soon_parts(self) -> Mapping[str, Parts]:
        """GPUs of open nodes that are being saved or released, by GPU type."""
        nodes, soon = self.nodes, self.soon.items()
        return self._split([each for each in soon if each[0] in nodes and nodes[each[0]].open])

    def _clear_soon(self, node_id: NodeId, mask: int) -> None:
        left = self.soon.get(node_id, 0) & ~mask
        if left:
            self.soon[node_id] = left
        else:
            self.soon.pop(node_id, None)

    def _outdate(self, node_id: NodeId) -> None:
        """Until it is placed anew, nothing of it is counted."""
        self._unplaced[node_id] = None
        self._homes.pop(node_id, None)

    def _refresh(self, node_id: NodeId) -> None:
        if node_id in self._unplaced:
            return
        ordinal = self.ordinals[node_id]
        opened = self.nodes[node_id].open
        claimed, withheld = self.claimed(node_id), self.nodes[node_id].withheld
        homes = []
        for gpu_type, owned in self._masks[node_id].items():
            pool = self.free[gpu_type]
            usable = owned & ~withheld if opened else 0
            self.open[gpu_type].set(ordinal, usable)
            self.free_devices += pool.set(ordinal, usable & ~claimed)
            homes.append(_Home(pool, usable))
        self._homes[node_id] = tuple(homes) if opened else ()

    def _place(self) -> None:
        """Give a place to each node that has come or changed, and take it from those gone."""
        unplaced, self._unplaced = sorted(self._unplaced), {}
        self._parts.clear()
        self.held.clear()
        if len(unplaced) * _ALL_ANEW > len(self.nodes):
            self._rebuild()
            return
        for node_id in unplaced:
            self._place_one(node_id)

    def _place_one(self, node_id: NodeId) -> None:
        node, ordinal = self.nodes.get(node_id), self.ordinals.get(node_id)
        if ordinal is None and node is not None:
            ordinal = self._number(node_id)
            self._traits.insert(ordinal, node)
        elif node is not None and ordinal is not None:
            self._traits.change(ordinal, node)
        if ordinal is not None:
            self._own(ordinal, self._masks.get(node_id, {}))
        if node is not None:
            self._refresh(node_id)
        elif ordinal is not None:
            self._traits.delete(ordinal)
            self._unnumber(ordinal)

    def _number(self, node_id: NodeId) -> int:
        """Its place in the order of ids. The last costs nothing, others move those behind them."""
        ordinal = bisect_left(self.node_ids, node_id)
        self.node_ids.insert(ordinal, node_id)
        self._count_from(ordinal)
        for pools in (self.free, self.open, self.total):
            for pool in pools.values():
                pool.insert(ordinal)
        return ordinal

    def _unnumber(self, ordinal: int) -> None:
        del self.ordinals[self.node_ids.pop(ordinal)]
        self._count_from(ordinal)
        for pools in (self.free, self.open, self.total):
            for pool in pools.values():
                pool.delete(ordinal)

    def _count_from(self, ordinal: int) -> None:
        behind = islice(self.node_ids, ordinal, None)
        self.ordinals.update(zip(behind, range(ordinal, len(self.node_ids)), strict=True))

    def _own(self, ordinal: int, masks: Mapping[str, int]) -> None:
        """The node has these GPUs from now on, none of which is free or open yet."""
        for gpu_type in [name for name in masks if name not in self.total]:
            self._add_type(gpu_type)
        for gpu_type in [*self.total]:
            owned = masks.get(gpu_type, 0)
            self.free_devices += self.free[gpu_type].set(ordinal, 0)
            for pools in (self.free, self.open, self.total):
                pools[gpu_type].set(ordinal, 0)
                pools[gpu_type].resize(ordinal, owned.bit_count())
            self.total[gpu_type].set(ordinal, owned)
            if not self.total[gpu_type].widths:
                del self.free[gpu_type], self.open[gpu_type], self.total[gpu_type]

    def _add_type(self, gpu_type: str) -> None:
        """Types stand in the order of their names."""
        for pools in (self.free, self.open, self.total):
            pools[gpu_type] = Pool([0] * len(self.node_ids), self.node_ids, self._traits)
            by_name = sorted(pools.items())
            pools.clear()
            pools.update(by_name)

    def _rebuild(self) -> None:
        self.node_ids = sorted(self.nodes)
        self.ordinals = {node_id: ordinal for ordinal, node_id in enumerate(self.node_ids)}
        gpu_types = sorted({gpu_type for masks in self._masks.values() for gpu_type in masks})
        for pools in (self.free, self.open, self.total):
            pools.clear()
        self._traits = Traits({}, [self.nodes[node_id] for node_id in self.node_ids])
        for gpu_type in gpu_types:
            owned = [self._masks[node_id].get(gpu_type, 0) for node_id in self.node_ids]
            sizes = [mask.bit_count() for mask in owned]
            for pools in (self.free, self.open, self.total):
                pools[gpu_type] = Pool(sizes, self.node_ids, self._traits)
            for ordinal, mask in enumerate(owned):
                self.total[gpu_type].set(ordinal, mask)
        self.free_devices = 0
        for node_id in self.node_ids:
            self._refresh(node_id)


def others(before: Node, node: Node) -> bool:
    """Whether it must be placed anew: its GPUs or its traits are others."""
    return _had(before) != _had(node)


def _had(node: Node) -> tuple[object, ...]:
    sizes = (node.cpu_count, node.memory_bytes, node.cores, node.core_memory_bytes)
    return (node.gpus, node.runtimes, node.labels, node.doubted, *sizes)
