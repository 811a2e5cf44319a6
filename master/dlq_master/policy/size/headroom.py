"""GPUs that elastic jobs do not grow into: for deadlines that cannot wait for a boundary.

A job of a minute with a deadline in two is late if it waits for the next boundary. Elastic jobs
would give their GPUs back only there. So they leave as many free as the widest such job of the last
day asked for. The next one then starts when it comes.
"""

from __future__ import annotations

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.estimates.demand import WINDOW_S
from dlq_master.policy.promise.capacity.grids import home_type, own_pool, slot_s
from dlq_master.policy.promise.capacity.rules import Promises

MOST = 0.5  # of the GPUs of the type: growth is worth more than deadlines of wider jobs


def headroom(cluster: Cluster, gpu_type: str, rules: Promises | None) -> int:
    """GPUs of this type that are to stay free, worked out once a slot.

    They are of the type on which jobs without a wish are promised their deadlines.
    """
    if rules is None or not rules.chances or not cluster.offers.newest:
        return 0
    if gpu_type != home_type(cluster):
        return 0
    widest: int | None = cluster.memo.get("headroom", cluster.slot, cluster.terms)
    if widest is None:
        widest = _widest(cluster)
        cluster.memo.put("headroom", widest, cluster.slot, cluster.terms)
    return min(widest, int(MOST * own_pool(cluster, gpu_type).total))


def _widest(cluster: Cluster) -> int:
    """The widest short request of the day before the end of the present slot, in GPUs.

    Requests within the slot, or within the term before it, do not count. The slot is decided
    within that term, and a master that starts later finds the same.
    """
    term_s, begin_s = cluster.terms.be_term_s, cluster.slot * slot_s(cluster)
    first_s, last_s = begin_s + slot_s(cluster) - WINDOW_S, begin_s - term_s
    short = [it for it in cluster.offers if it.run_s < term_s and first_s <= it.time_s < last_s]
    return max([offer.gpus for offer in short], default=0)
