"""The ground on which nobody has to leave: what is free now, and what others are leaving."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlq_master.model.cluster import Cluster
from dlq_master.model.pool import Parts
from dlq_master.model.resources import Shape
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.walk.line import Head
from dlq_master.policy.walk.outcome import Chosen, Outcome
from dlq_master.policy.walk.reserve import closest
from dlq_master.policy.walk.standing import Block
from dlq_master.policy.walk.stock import Stock

_NO_LIMIT = float("inf")


class Space:
    """A job that fits into what is free starts. One that fits only together with GPUs that others
    are leaving claims them for this plan, and a promoted job that does not fit at all keeps what is
    free where it may come to fit: whoever ranks lower does not get those GPUs.

    `blocking`: nobody passes the first job that does not start.
    """

    __slots__ = ("blocking", "cluster", "outcome", "placement", "spent", "stocks")

    def __init__(self, cluster: Cluster, placement: Placement, *, blocking: bool = False) -> None:
        capacity = cluster.capacity
        capacity.ready()
        self.cluster = cluster
        self.placement = placement
        self.blocking = blocking
        self.outcome = Outcome()
        self.spent = not capacity.free_gpus
        self.stocks = {gpu_type: Stock(pool) for gpu_type, pool in capacity.free.items()}
        if capacity.soon:
            for gpu_type, parts in capacity.soon_parts().items():
                self.stocks[gpu_type].give_later(parts)

    def ranks(self) -> Sequence[int]:
        """All in which somebody waits."""
        return self.cluster.waiting.ranks

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
        found = self.find_free(shape)
        if found is not None:
            stock, parts = found
            self.outcome.chosen.append(Chosen(job_id, parts))
            if len(self.stocks) == 1 and shape.gpus == stock.free.total:
                self.spent = True  # that was the last of it: no need to write it down
            else:
                self.take(stock, parts)
            return True
        served = self.claim(head)
        if self.blocking:
            self.outcome.head_of_line = job_id
            self.spent = True
            return True
        return served or self.reserve(head)

    def finish(self) -> None:
        """Everything is written already."""

    def most_left(self) -> int:
        """The most GPUs of one type that are left, free now or later."""
        return max([stock.later.total for stock in self.stocks.values()], default=0)

    def stocks_for(self, shape: Shape) -> Iterable[Stock]:
        """Those that may hold the shape, in a fixed order; a job never mixes types."""
        if shape.gpu_type is None:
            return self.stocks.values()
        stock = self.stocks.get(shape.gpu_type)
        return () if stock is None else (stock,)

    def find_free(self, shape: Shape) -> tuple[Stock, Parts] | None:
        """GPUs that are free now."""
        for stock in self.stocks_for(shape):
            if shape.gpus <= stock.free.total:
                parts = self.placement.find(stock.free, shape)
                if parts is not None:
                    return stock, parts
        return None

    def claim(self, head: Head) -> bool:
        """It fits together with what others are leaving: keep that from lower ranks."""
        _, job_id, shape, _ = head
        for stock in self.stocks_for(shape):
            parts = stock.find_later(self.placement, shape)
            if parts is not None:
                self.outcome.claims[job_id] = False
                self.take(stock, parts)
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
                    self.take(stock, parts)
                    break
        return True

    def take(self, stock: Stock, parts: Parts) -> None:
        """These GPUs are spoken for."""
        stock.take(parts)
        if not stock.free.total:
            self.spent = all(not other.free.total for other in self.stocks.values())
