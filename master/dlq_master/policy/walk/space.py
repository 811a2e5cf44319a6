"""The ground on which nobody has to leave: what is free now, and what others are leaving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlq_master.model.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.lineup import Lineup
from dlq_master.model.pool import Parts, Pool
from dlq_master.model.resources import Shape
from dlq_master.policy.place.batch import Batch
from dlq_master.policy.place.chooser import Balance
from dlq_master.policy.place.groups import Groups, decreasing
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.walk.line import Head
from dlq_master.policy.walk.outcome import Outcome
from dlq_master.policy.walk.reserve import closest
from dlq_master.policy.walk.standing import Block
from dlq_master.policy.walk.stock import Stock
from dlq_master.policy.walk.usable import usable

_NO_LIMIT = float("inf")


class Space:
    """A job that fits into what is free starts. One that fits only together with GPUs that others
    are leaving claims them for this plan, and a promoted job that does not fit at all keeps what is
    free where it may come to fit: whoever ranks lower does not get those GPUs.

    `blocking`: nobody passes the first job that does not start.
    """

    __slots__ = (
        "balance",
        "batch",
        "blocking",
        "cluster",
        "groups",
        "lineup",
        "outcome",
        "placement",
        "spent",
        "stocks",
    )

    def __init__(
        self, cluster: Cluster, lineup: Lineup, placement: Placement, *, blocking: bool = False
    ) -> None:
        capacity = cluster.capacity
        capacity.ready()
        self.cluster = cluster
        self.lineup = lineup
        self.placement = placement
        self.blocking = blocking
        self.balance = Balance(cluster) if placement.balances else None
        self.batch = Batch(cluster, placement)
        self.groups = Groups(cluster) if placement.groups else None
        self.outcome = Outcome()
        self.spent = not capacity.free_gpus
        self.stocks: dict[str, Stock] = {}
        for gpu_type, pool in capacity.free.items():
            self.stocks[gpu_type] = Stock(pool)
        if capacity.soon:
            for gpu_type, parts in usable(capacity, capacity.soon_parts()):
                self.stocks[gpu_type].give_later(parts)

    def ranks(self) -> Sequence[int]:
        """All in which somebody waits."""
        return self.lineup.waiting.ranks

    def widest(self) -> float:
        """As wide as what is left; the head of a line that blocks, and a promoted job, count even
        if they fit nowhere."""
        if self.blocking or self.cluster.ordering.promotes:
            return _NO_LIMIT
        return self.most_left()

    def blocks(self, rank: int, *, apart: bool) -> Sequence[Block]:
        """None: whoever runs, runs."""
        return ()

    def keep(self, rank: int, block: Block) -> None:
        """Nobody's GPUs are in question."""

    def serve(self, rank: int, head: Head) -> bool:
        """It starts, claims or reserves."""
        _, job_id, shape, _ = head
        found = self.find_free(head)
        if found is not None:
            stock, parts = found
            self.outcome.chosen[job_id] = parts
            if len(self.stocks) == 1 and self.groups is None and shape.gpus == stock.free.total:
                self.spent = True  # that was the last of it: no need to write it down
                return True
            stock.take(parts)
        elif self.blocking:
            self.claim(head)
            self.outcome.heads[""] = job_id
            self.spent = True
            return True
        elif not (self.claim(head) or self.reserve(head)):
            return False
        for other in self.stocks.values():
            if other.free.total:
                return True
        self.spent = True
        return True

    def finish(self) -> None:
        """Place those that start as a whole, if the placement does that."""
        if self.groups is not None:
            self._again_widest_first(self.groups)
            if len(self.stocks) > 1:
                self._start_mixed()
        if self.placement.arranges is None or not self.outcome.chosen:
            return
        pools = {gpu_type: stock.free for gpu_type, stock in self.stocks.items()}
        fixed = set(self.outcome.outranked.values())
        for gpu_type, moved, told in self.batch.arrange(pools, self.outcome.chosen, fixed):
            self._exchange(self.stocks[gpu_type], moved)
            self.outcome.told.update(dict.fromkeys(moved, told))

    def most_left(self) -> int:
        """The most GPUs of one type that are left, free now or later."""
        most = 0
        for stock in self.stocks.values():
            if stock.later.total > most:
                most = stock.later.total
        return most

    def find_free(self, head: Head) -> tuple[Stock, Parts] | None:
        """GPUs that are free now, for a job that then starts on them."""
        _, job_id, shape, _ = head
        if self.groups is not None:
            return self._find_in_groups(self.groups, job_id, shape)
        gpus, wanted = shape.gpus, shape.gpu_type
        for gpu_type, stock in self.stocks.items():
            free = stock.free
            if gpus <= free.total and (wanted is None or wanted == gpu_type):
                parts = self.placement.find(free, shape)
                if parts is not None:
                    if self.balance is not None:
                        job = self.cluster.jobs[job_id]
                        parts, told = self.balance.choose(job, free, shape, parts)
                        if told:
                            self.outcome.told[job_id] = told
                    return stock, parts
        return self._make_room(head) if self.placement.repacks else None

    def claim(self, head: Head) -> bool:
        """It fits together with what others are leaving: keep that from lower ranks."""
        _, job_id, shape, _ = head
        for gpu_type, stock in self.stocks.items():
            if shape.gpu_type in (None, gpu_type):
                parts = stock.find_later(self.placement, shape)
                if parts is not None:
                    self.outcome.claims[job_id] = False
                    stock.take(parts)
                    return True
        return False

    def reserve(self, head: Head) -> bool:
        """It is promoted: what is free where it may come to fit is kept from lower ranks."""
        position, job_id, shape, _ = head
        if position >= 0:
            return False
        opened = self.cluster.capacity.open
        for gpu_type, stock in self.stocks.items():
            if shape.gpu_type in (None, gpu_type):
                parts = closest(self.placement, stock.free, opened[gpu_type], shape)
                if parts is not None:
                    self.outcome.claims[job_id] = True
                    stock.take(parts)
                    break
        return True

    def _find_in_groups(
        self, groups: Groups, job_id: JobId, shape: Shape
    ) -> tuple[Stock, Parts] | None:
        """On the best servers for a base or an inelastic job; of several GPU types, on those with the best
        servers left."""
        elastic = bool(self.cluster.jobs[job_id].request.sizes)
        stocks = [
            stock
            for gpu_type, stock in self.stocks.items()
            if shape.gpu_type in (None, gpu_type) and shape.gpus <= stock.free.total
        ]
        find = self.placement.find
        return groups.place(stocks, lambda pool: find(pool, shape), elastic=elastic)

    def _again_widest_first(self, groups: Groups) -> None:
        """Those that start, placed once more in the order of best fit decreasing."""
        chosen = self.outcome.chosen
        if len(chosen) < 2 or self.outcome.outranked:
            return
        before = {job_id: (self._stock_of(parts), parts) for job_id, parts in chosen.items()}
        for stock, parts in before.values():
            stock.give_free(parts)
        jobs = self.cluster.jobs
        made: dict[JobId, tuple[Stock, Parts]] = {}
        for job in decreasing(jobs[job_id] for job_id in chosen):
            found = self._find_in_groups(groups, job.job_id, self.cluster.shape(job))
            if found is None:
                break
            made[job.job_id] = found
            found[0].take(found[1])
        if len(made) < len(chosen):
            for stock, parts in made.values():
                stock.give_free(parts)
            made = before
            for stock, parts in made.values():
                stock.take(parts)
        for job_id in chosen:
            chosen[job_id] = made[job_id][1]

    def _start_mixed(self) -> None:
        """Last, on what is left: jobs whose GPUs may be of several types."""
        chosen, claims = self.outcome.chosen, self.outcome.claims
        for _, fifos in sorted(self.lineup.waiting.by_rank.items()):
            line = sorted(
                (position, job_id, shape)
                for shape, fifo in fifos.items()
                if shape.mixed
                for job_id, position in fifo.items()
                if job_id not in chosen and job_id not in claims
            )
            for _, job_id, shape in line:
                left = sum(stock.free.total for stock in self.stocks.values())
                if not left or (self.blocking and self.outcome.heads):
                    return
                if shape.gpus <= left:
                    parts = self.placement.find(self._all_types(), shape)
                    if parts is not None:
                        chosen[job_id] = parts
                        self.outcome.told[job_id] = "on GPUs of several types"
                        for stock in self.stocks.values():
                            stock.take(parts)

    def _all_types(self) -> Pool:
        """What is free, whatever its type."""
        free = [stock.free for stock in self.stocks.values()]
        masks = [0] * len(free[0].masks)
        for pool in free:
            masks = [some | more for some, more in zip(masks, pool.masks, strict=True)]
        joined = Pool([mask.bit_count() for mask in masks], free[0].node_ids, free[0].traits)
        for ordinal, mask in enumerate(masks):
            joined.set(ordinal, mask)
        return joined

    def _stock_of(self, parts: Parts) -> Stock:
        total = self.cluster.capacity.total
        return next(
            stock
            for gpu_type, stock in self.stocks.items()
            if total[gpu_type].masks[parts[0].ordinal] & parts[0].mask
        )

    def _make_room(self, head: Head) -> tuple[Stock, Parts] | None:
        """It fits if those that start in this plan are packed otherwise."""
        shape, chosen = head[2], self.outcome.chosen
        fixed = set(self.outcome.outranked.values())
        for gpu_type, stock in self.stocks.items():
            if chosen and shape.gpu_type in (None, gpu_type):
                found = self.batch.make_room(gpu_type, stock.free, shape, chosen, fixed)
                if found is not None:
                    parts, moved = found
                    self._exchange(stock, moved)
                    told = f"packed anew with {len(moved)} others to make room"
                    self.outcome.told.update(dict.fromkeys((head[1], *moved), told))
                    return stock, parts
        return None

    def _exchange(self, stock: Stock, moved: Mapping[JobId, Parts]) -> None:
        """These jobs start elsewhere."""
        chosen = self.outcome.chosen
        self.outcome.exchanged = True
        for job_id in moved:
            stock.give_free(chosen[job_id])
        for job_id, parts in moved.items():
            chosen[job_id] = parts
            stock.take(parts)
