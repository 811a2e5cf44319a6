"""The view of a policy: one instant of the cluster, read-only."""

from __future__ import annotations

from typing import NamedTuple

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.machines.renting import NOTHING_RENTED, RentingView
from dlq_master.model.why import ReasonCode


class View(NamedTuple):
    """The cluster at `now_s`. Policies read; only `model.drive` writes.

    `pause_starts` says why nothing may start or lapse just now (freeze, master_starting).
    `machines`: for the rent stage, and for the check of its plans.
    """

    cluster: Cluster
    now_s: float
    pause_starts: ReasonCode | None = None
    machines: RentingView = NOTHING_RENTED
