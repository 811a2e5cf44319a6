"""The GPU time of an attempt is written in the turns in which attempts end and GPUs change hands.

So it is exact whenever the master dies. The time of ended attempts was written with their end, and
that of living ones is counted from stored rows (store/tables/accounts.py). GPUs are held until the
turn in which they fall free. A node counts as it was last known while the master, or its agent, is
away.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import AttemptKey, NodeId
from dlq_master.model.nodes.node import Node
from dlq_master.model.resources import GPU_BITS, Allocation, Slot, mask_of
from dlq_master.model.usage.accounting import Level, by_day, charges, summed
from dlq_master.store.batch import Batch
from dlq_master.store.tables.accounts import LEVELS, Levels, PoolRow, UseRow, read_levels


@dataclass(slots=True)
class Bookkeeping:
    """`levels`: as they are on disk. The rest follows from the attempts and nodes that there
    are.
    """

    levels: Levels
    held: dict[AttemptKey, Allocation] = field(default_factory=dict)
    masks: dict[NodeId, int] = field(default_factory=dict)  # of the GPUs that are held
    places: dict[NodeId, tuple[str, Level]] = field(default_factory=dict)
    sums: dict[str, Level] = field(default_factory=dict)  # of the places, by pool

    @classmethod
    def begin(cls, cluster: Cluster, stored: str | None, now_s: float) -> Bookkeeping:
        """Go on with what is stored, or begin now."""
        made = cls(read_levels(stored) or Levels(now_s, {}))
        made._take(cluster.attempts.values())
        for node in cluster.nodes.values():
            made._place(node.node_id, node)
        return made

    def write(self, batch: Batch, cluster: Cluster, now_s: float) -> None:
        """Put into a batch what its rows mean for the books."""
        if not (batch.attempts or batch.nodes or batch.forgotten_nodes):
            return
        # An attempt that goes on with other GPUs has held its earlier ones until now.
        others = [one for one in cluster.claims.outgrown if one.key in self.held]
        batch.uses += self._charged((*batch.attempts, *others), cluster, now_s, others)
        changed = self._take(batch.attempts) | {node.node_id for node in batch.nodes}
        for node_id in changed | set(batch.forgotten_nodes):
            self._place(node_id, cluster.nodes.get(node_id))
        before = self.levels
        batch.pool_uses += self._turned(now_s)
        if self.levels is not before:
            batch.meta[LEVELS] = self.levels.written()

    # --- helpers, in order of use -----------------------------------------------------------------

    def _charged(
        self,
        attempts: Iterable[Attempt],
        cluster: Cluster,
        now_s: float,
        before: Collection[Attempt] = (),
    ) -> Iterator[UseRow]:
        """The GPU time of attempts that end now, or that go on with other GPUs."""
        rows = (
            row
            for one in attempts
            if one.key in self.held and (not one.live or any(one is it for it in before))
            for row in charges(
                one, cluster.jobs[one.key.job_id], now_s, self._pools(one), self.levels.from_s
            )
        )
        return (UseRow(account, spent) for account, spent in summed(rows).items())

    def _pools(self, attempt: Attempt) -> dict[NodeId, str]:
        return {name: self.places[name][0] for name in attempt.lease.allocation.node_ids}

    def _take(self, attempts: Iterable[Attempt]) -> set[NodeId]:
        """Nodes of which other GPUs are held from now on."""
        changed = set()
        for attempt in attempts:
            had = self.held.get(attempt.key)
            has = attempt.lease.allocation if attempt.live else None
            if has == had:
                continue
            if has is None:
                del self.held[attempt.key]
            else:
                self.held[attempt.key] = has
            for node_id, mask in (*_slots(had), *_slots(has)):
                self.masks[node_id] = self.masks.get(node_id, 0) ^ mask
                changed.add(node_id)
        return changed

    def _place(self, node_id: NodeId, node: Node | None) -> None:
        """Count a node as it is now; None: it is gone."""
        pool, level = self.places.pop(node_id, ("", Level()))
        if pool:
            self.sums[pool] = self.sums[pool] + level.over(-1)
        if node is None:
            self.masks.pop(node_id, None)
            return
        pool, level = node.pool.value, level_of(node, self.masks.get(node_id, 0))
        self.places[node_id] = pool, level
        self.sums[pool] = self.sums.get(pool, Level()) + level

    def _turned(self, now_s: float) -> Iterator[PoolRow]:
        """The time gone by in pools whose level changes now."""
        pools = dict(self.levels.pools)
        for pool, level in self.sums.items():
            since_s, before = pools.get(pool, (now_s, Level()))
            if level == before and pool in pools:
                continue
            pools[pool] = max(since_s, now_s), level
            yield from (
                PoolRow(day, pool, before.over(span_s)) for day, span_s in by_day(since_s, now_s)
            )
        if pools != self.levels.pools:
            self.levels = self.levels._replace(pools=pools)


def _slots(allocation: Allocation | None) -> tuple[Slot, ...]:
    return () if allocation is None else allocation.slots


def level_of(node: Node, held: int) -> Level:
    """Its GPUs, of which those of a bitmask are held. A server of the inference side counts while
    it is lent.
    """
    held &= GPU_BITS
    free = mask_of(gpu.index for gpu in node.gpus) & ~held
    idle = (free & ~node.withheld).bit_count() if node.open else 0
    withheld = 0 if node.away else free.bit_count() - idle
    return Level(held.bit_count(), idle, withheld)
