"""The bid price: the worth of a GPU for one slot where demand exceeds capacity.

A promise binds capacity for good, and a later job may earn more with it. The linear program of
revenue management prices each unit of capacity. Of the recent demand it takes the jobs with the
most reward for a GPU and slot, until the capacity is used. The last one's reward is the price
(Talluri and van Ryzin, The Theory and Practice of Revenue Management, 2004, chapter 3.3.1:
bid-price control). A job that earns less gets no promise, but may get slots that are left.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.policy.promise.capacity.leases import Grid, needed, round_up

SHARE = 0.8  # of the capacity that is counted on: plans leave holes, and work is bound already
_LEAST_SPAN_S = 3600.0


def bid_price(asked: Iterable[tuple[float, float]], gpu_slots: float) -> float:
    """The reward of a GPU-slot at which the demand exceeds `gpu_slots`; 0: it never does.

    `asked`: GPU-slots and reward of each job.
    """
    left = gpu_slots
    for density, amount in sorted(((r / a, a) for a, r in asked), reverse=True):
        left -= amount
        if left < 0:
            return density
    return 0.0


@lru_cache(maxsize=1 << 13)
def _gpu_slots(gpus: int, run_s: float, node_gpus: int, term_s: float) -> float:
    """The GPU-slots of a job."""
    return float(round_up(gpus, node_gpus) * needed(run_s, term_s))


def price(cluster: Cluster, grid: Grid, now_s: float) -> float:
    """The bid price by the recent demand, computed once a slot."""
    known = cluster.memo.get("price", cluster.slot, grid.capacity)
    if known is None:
        node_gpus, term_s = grid.node_gpus if grid.rounds_up else 1, grid.term_s
        asked = [
            (_gpu_slots(offer.gpus, offer.run_s, node_gpus, term_s), offer.reward)
            for offer in cluster.offers
        ]
        slots = max(_LEAST_SPAN_S, cluster.offers.span_s(now_s)) / grid.term_s
        known = bid_price(asked, SHARE * grid.at(0) * slots)
        cluster.memo.put("price", known, cluster.slot, grid.capacity)
    return float(known)
