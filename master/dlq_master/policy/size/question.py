"""What the walk of elastic jobs is asked, and what each of them holds."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.order.lineup import Lineup
from dlq_master.policy.partition.reserved.served_first import ServedFirst
from dlq_master.policy.place.allocation.masks import Masks
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.size.sizing import Sizing


class ElasticQuestion(NamedTuple):
    """What is asked of `elastic.decide`. `movable`: running jobs that this plan may shrink, grow
    or, if `preempts`, make leave. `at_once`: what they leave is free in this plan. `seating`: who
    is served before everybody else; None: nothing is promised. `protected`: who does not leave,
    whatever the order; with a `seating` that says it. `cooling`: who is given no more GPUs yet.
    `young`: who gives GPUs to seats alone. `tied`: who may have its base, or what it has: any other
    size would endanger what it is promised."""

    cluster: Cluster
    now_s: float
    lineup: Lineup
    placement: Placement
    sizing: Sizing
    movable: Collection[JobId]
    preempts: bool
    at_once: bool
    seating: ServedFirst | None = None
    protected: Collection[JobId] = ()
    cooling: Collection[JobId] = ()
    young: Collection[JobId] = ()
    tied: Collection[JobId] = ()


class HeldByElastic(NamedTuple):
    """What a job that runs holds: the part that it keeps in any case, and the rest."""

    gpu_type: str
    base: Masks  # masks by node
    extra: Masks
