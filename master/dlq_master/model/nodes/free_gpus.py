"""GPUs of one type by node, with nodes bucketed by how many they have left."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from dlq_master.model.ids import NodeId
from dlq_master.model.resources import Shape, indices
from dlq_master.model.traits import NOTHING, Traits, closed_at, gap_at
from dlq_master.model.values import maker


class Part(NamedTuple):
    """GPUs of one node, the node given by its ordinal in the pool."""

    ordinal: int
    mask: int


Parts = tuple[Part, ...]
Widths = tuple[tuple[int, int], ...]
make_part = maker(Part)


class Pool:
    """Available GPUs per node; nodes are numbered in the order of their ids.

    `buckets[n]` is a bitmask over nodes: those with exactly n GPUs left. Every choice made from
    it takes the lowest node first, so it depends on what is free, never on history.
    `widths` says how many nodes own how many GPUs, the largest first.
    """

    __slots__ = ("buckets", "masks", "node_ids", "sizes", "total", "traits", "widths")

    def __init__(
        self,
        sizes: Sequence[int],
        node_ids: Sequence[NodeId] = (),
        traits: Traits = NOTHING,
    ) -> None:
        """An empty pool over nodes that own `sizes[ordinal]` GPUs of this type; their ids, sorted.

        `traits`: the traits of these nodes for which jobs may ask.
        """
        self.node_ids = node_ids
        self.traits = traits
        self.sizes = [*sizes]
        self.masks = [0] * len(sizes)
        self.buckets = [0] * (max(sizes, default=0) + 1)
        self.buckets[0] = (1 << len(sizes)) - 1
        self.total = 0
        self.widths = _widths(Counter(sizes))

    def copy(self) -> Pool:
        twin = Pool.__new__(Pool)
        twin.masks = self.masks.copy()
        twin.buckets = self.buckets.copy()
        twin.total = self.total
        twin.widths = self.widths
        twin.sizes = self.sizes
        twin.node_ids = self.node_ids
        twin.traits = self.traits
        return twin

    def allowed(self, shape: Shape) -> Pool:
        """The same as if nothing were left where this shape must not go."""
        pool = self.without(shape.avoid) if shape.avoid else self
        if shape.traits is None:
            return pool
        able = self.traits.mask(shape.traits)
        left = ((1 << len(self.masks)) - 1) & ~pool.buckets[0]
        wrong, right = left & ~able, left & able
        if right.bit_count() < wrong.bit_count():
            few = pool.emptied()
            for ordinal in indices(right):
                few.set(ordinal, pool.masks[ordinal])
            return few
        if wrong and pool is self:
            pool = self.copy()
        for ordinal in indices(wrong):
            pool.set(ordinal, 0)
        return pool

    def seen_by(self, shape: Shape) -> Pool:
        """The same at a lower price, only to be looked at through its buckets. Its masks are those
        of all nodes.
        """
        pool = self.without(shape.avoid) if shape.avoid else self
        if shape.traits is None:
            return pool
        able = self.traits.mask(shape.traits)
        if able == -1 or (pool.buckets[0] | able) + 1 == 1 << len(self.masks):
            return pool  # whatever is left is there
        return pool._seen_on(able)

    def undoubted(self) -> Pool:
        """The same without the suspected stragglers, as cheap, only to be looked at likewise."""
        return self._seen_on(~self.traits.doubted)

    def _seen_on(self, able: int) -> Pool:
        twin = Pool.__new__(Pool)
        twin.masks, twin.sizes, twin.widths = self.masks, self.sizes, self.widths
        twin.node_ids, twin.traits = self.node_ids, self.traits
        twin.buckets = [bucket & able for bucket in self.buckets]
        twin.total = sum([n * bucket.bit_count() for n, bucket in enumerate(twin.buckets)])
        return twin

    def without(self, node_ids: Iterable[NodeId]) -> Pool:
        """The same without these nodes: the most that could ever be had is less, too."""
        twin = self.copy()
        sizes = list(self.sizes)
        for node_id in node_ids:
            ordinal = bisect_left(self.node_ids, node_id)
            if ordinal < len(self.node_ids) and self.node_ids[ordinal] == node_id:
                twin.set(ordinal, 0)
                sizes[ordinal] = 0
        if sizes != self.sizes:
            twin.sizes, twin.widths = sizes, _widths(Counter(sizes))
        return twin

    def emptied(self) -> Pool:
        twin = self.copy()
        twin.masks = [0] * len(self.masks)
        twin.buckets = [0] * len(self.buckets)
        twin.buckets[0] = (1 << len(self.masks)) - 1
        twin.total = 0
        return twin

    def set(self, ordinal: int, mask: int) -> int:
        """The node has exactly these GPUs left: so many more than before."""
        masks = self.masks
        before = masks[ordinal].bit_count()
        after = mask.bit_count()
        masks[ordinal] = mask
        if before == after:
            return 0
        bit = 1 << ordinal
        buckets = self.buckets
        buckets[before] ^= bit
        buckets[after] ^= bit
        self.total += after - before
        return after - before

    def insert(self, ordinal: int) -> None:
        """A node without GPUs of this type gets this number: those behind it move up."""
        self.masks.insert(ordinal, 0)
        self.sizes.insert(ordinal, 0)
        self.buckets = [gap_at(bucket, ordinal) for bucket in self.buckets]
        self.buckets[0] |= 1 << ordinal

    def delete(self, ordinal: int) -> None:
        """A node without GPUs of this type goes: those behind it move down."""
        del self.masks[ordinal], self.sizes[ordinal]
        self.buckets = [closed_at(bucket, ordinal) for bucket in self.buckets]

    def resize(self, ordinal: int, size: int) -> None:
        """The node, which has none of them left, owns so many GPUs from now on."""
        before = self.sizes[ordinal]
        if before == size:
            return
        self.sizes[ordinal] = size
        counts = Counter(dict(self.widths))
        counts.subtract([before])
        counts.update([size])
        self.widths = _widths(counts)
        largest = self.widths[0][0] if self.widths else 0
        self.buckets += [0] * (largest + 1 - len(self.buckets))
        del self.buckets[largest + 1 :]

    def take(self, parts: Parts) -> None:
        """Remove these GPUs as far as they are here."""
        self._change(parts, gives=False)

    def give(self, parts: Parts) -> None:
        """Add these GPUs as far as they are not here."""
        self._change(parts, gives=True)

    def _change(self, parts: Parts, *, gives: bool) -> None:
        masks, buckets = self.masks, self.buckets  # as `set`, without a call for each part
        for ordinal, mask in parts:
            before = masks[ordinal]
            after = before | mask if gives else before & ~mask
            if after != before:
                masks[ordinal] = after
                had, has = before.bit_count(), after.bit_count()
                bit = 1 << ordinal
                buckets[had] ^= bit
                buckets[has] ^= bit
                self.total += has - had

    def join(self, ordinals: Iterable[int], some: Sequence[int], more: Sequence[int]) -> None:
        """These nodes have exactly the GPUs that are in either of two lists of masks by node."""
        masks, buckets = self.masks, self.buckets  # as `set`, without a call for each node
        for ordinal in ordinals:
            after = some[ordinal] | more[ordinal]
            had, has = masks[ordinal].bit_count(), after.bit_count()
            masks[ordinal] = after
            if had != has:
                bit = 1 << ordinal
                buckets[had] ^= bit
                buckets[has] ^= bit
                self.total += has - had

    def fewest_nodes(self, gpus: int) -> int:
        """The least number of nodes that could ever give this many GPUs; 0: not even all."""
        nodes = 0
        for width, count in self.widths:
            if gpus <= width * count:
                return nodes + -(-gpus // width)
            gpus -= width * count
            nodes += count
        return 0

    def nodes_with(self, gpus: int) -> Iterator[int]:
        """Nodes with at least `gpus` left, the tightest fit first."""
        for bucket in self.buckets[gpus:]:
            yield from indices(bucket)

    def largest_free(self) -> int:
        return next((n for n in range(len(self.buckets) - 1, 0, -1) if self.buckets[n]), 0)


def _widths(counts: Mapping[int, int]) -> Widths:
    """How many nodes own how many GPUs, the largest first; nodes without any are left out."""
    return tuple(sorted([each for each in counts.items() if min(each) > 0], reverse=True))


@lru_cache(maxsize=1 << 14)
def lowest(mask: int, gpus: int) -> int:
    """The `gpus` lowest set bits of the mask, which has at least that many."""
    taken = 0
    for _ in range(gpus):
        bit = mask & -mask
        taken |= bit
        mask ^= bit
    return taken


def up_to(mask: int, gpus: int) -> int:
    """The same, or the whole mask if it has fewer."""
    return lowest(mask, min(gpus, mask.bit_count()))
