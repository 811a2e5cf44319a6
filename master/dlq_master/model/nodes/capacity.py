"""GPUs that exist, are open and are free: pools per GPU type, derived from nodes and claims.

The job cores of nodes are one pool more, of the type CORE_TYPE.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.nodes.free_gpus import Part, Parts, Pool, make_part
from dlq_master.model.nodes.node import Node, NodeState
from dlq_master.model.resources import CORE_TYPE, Allocation, only_gpus
from dlq_master.model.traits import Traits

Pools = dict[str, Pool]

_PARTS_KEPT = 4096  # allocations; more than run at once on all but the largest clusters


class _Home(NamedTuple):
    """Where a node's GPUs of one type are counted while they are free."""

    pool: Pool
    ordinal: int
    owned: int


class Capacity:
    """Free = open nodes' GPUs - claims of live attempts. Nothing here is stored on disk.

    Pools are numbered by sorted node id; a new or vanished node rebuilds them, anything else
    changes only the node concerned.
    """

    __slots__ = (
        "_homes",
        "_masks",
        "_parts",
        "_rebuild_needed",
        "claims",
        "closed",
        "free",
        "free_devices",
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
        self._rebuild_needed = False

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
            self._outdate()
        elif before.open != node.open or before.withheld != node.withheld:
            self._refresh(node.node_id)

    def remove_node(self, node_id: NodeId) -> None:
        """Forget a node; refused while a live attempt holds GPUs of it."""
        if self.claims.get(node_id):
            raise ValueError(f"node {node_id} is still held by {sorted(self.claims[node_id])}")
        del self.nodes[node_id], self.claims[node_id], self._masks[node_id]
        self.closed.discard(node_id)
        self.marked.discard(node_id)
        self._outdate()

    def claim(self, key: AttemptKey, allocation: Allocation, *, soon: bool) -> None:
        """The attempt holds these GPUs (`soon`: it has been told to leave)."""
        for node_id, mask in allocation.slots:
            self.claims.setdefault(node_id, {})[key] = mask
            for pool, ordinal, _ in self._homes.get(node_id, ()):
                self.free_devices += pool.set(ordinal, pool.masks[ordinal] & ~mask)
        if soon:
            self.mark_soon(allocation, soon=True)

    def release(self, key: AttemptKey, allocation: Allocation, *, soon: bool) -> None:
        """The attempt is gone, its GPUs are free."""
        for node_id, mask in allocation.slots:
            del self.claims[node_id][key]
            for pool, ordinal, owned in self._homes.get(node_id, ()):
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
        if self._rebuild_needed:
            self._rebuild()

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
        if self._rebuild_needed:  # a beat may ask before any plan of a new master has
            self._rebuild()
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

    def _outdate(self) -> None:
        """Nodes or their GPUs are others: until the pools are rebuilt, nothing is counted."""
        self._rebuild_needed = True
        self._homes.clear()
        self._parts.clear()

    def _refresh(self, node_id: NodeId) -> None:
        if self._rebuild_needed:
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
            homes.append(_Home(pool, ordinal, usable))
        self._homes[node_id] = tuple(homes) if opened else ()

    def _rebuild(self) -> None:
        self._rebuild_needed = False
        self.node_ids = sorted(self.nodes)
        self._parts.clear()
        self.ordinals = {node_id: ordinal for ordinal, node_id in enumerate(self.node_ids)}
        gpu_types = sorted({gpu_type for masks in self._masks.values() for gpu_type in masks})
        for pools in (self.free, self.open, self.total):
            pools.clear()
        traits = Traits.of([self.nodes[node_id] for node_id in self.node_ids])
        for gpu_type in gpu_types:
            owned = [self._masks[node_id].get(gpu_type, 0) for node_id in self.node_ids]
            sizes = [mask.bit_count() for mask in owned]
            for pools in (self.free, self.open, self.total):
                pools[gpu_type] = Pool(sizes, self.node_ids, traits)
            for ordinal, mask in enumerate(owned):
                self.total[gpu_type].set(ordinal, mask)
        self.free_devices = 0
        for node_id in self.node_ids:
            self._refresh(node_id)


def others(before: Node, node: Node) -> bool:
    """Whether the pools must be made anew: its GPUs or its traits are others."""
    return _had(before) != _had(node)


def _had(node: Node) -> tuple[object, ...]:
    sizes = (node.cpu_count, node.memory_bytes, node.cores, node.core_memory_bytes)
    return (node.gpus, node.runtimes, node.labels, *sizes)
