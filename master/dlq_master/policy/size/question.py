"""The question to the walk of elastic jobs, and the GPUs of each of them."""

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
    """The question to `elastic.decide`. `movable`: running jobs that this plan may shrink, grow or,
    if `preempts`, make leave. `at_once`: their GPUs are free in this plan. `seating`: the jobs
    served before all others; None: nothing is promised. `protected`: jobs that do not leave,
    whatever the order; with a `seating` that says it. `cooling`: jobs that get no more GPUs yet.
    `young`: jobs that give GPUs to slot holders alone. `tied`: jobs that may have their base, or
    their present size: any other size would endanger their promise.
    """

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
    """The GPUs of a running job: the part that it keeps in any case, and the rest."""

    gpu_type: str
    base: Masks  # masks by node
    extra: Masks
