"""The view of a policy: one instant of the cluster, read-only."""

from __future__ import annotations

from typing import NamedTuple

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.machines.renting import NOTHING_RENTED, RentingView
from dlq_master.model.why import ReasonCode


class View(NamedTuple):
    """The cluster at `now_s`. Policies only read it; `model.cluster.drive` changes it.

    `pause_starts`: why no job may start or lapse now (freeze, master_starting); None: they may.
    `machines`: the input of the rent stage, and of the check of its plans.
    """

    cluster: Cluster
    now_s: float
    pause_starts: ReasonCode | None = None
    machines: RentingView = NOTHING_RENTED
