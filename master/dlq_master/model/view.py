"""What a policy may see: one instant of the cluster, read-only."""

from __future__ import annotations

from dataclasses import dataclass

from dlq_master.model.cluster import Cluster
from dlq_master.model.why import ReasonCode


@dataclass(frozen=True, slots=True)
class View:
    """The cluster at `now_s`. Policies read; only `model.drive` writes.

    `pause_starts` says why nothing may start or lapse just now (freeze, master_starting).
    """

    cluster: Cluster
    now_s: float
    pause_starts: ReasonCode | None = None
