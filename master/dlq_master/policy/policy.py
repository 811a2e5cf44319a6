"""A policy: one choice for each stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlq_master.model.order import Ordering
from dlq_master.policy.place.placement import Placement
from dlq_master.policy.transit.taking import Taking


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What `registry.build` makes of a name and settings, and `pipeline.plan` follows.

    `grid`: leases end on the boundaries of the term grid; without it (simulations in which
    preemption is free) a lease never ends by itself. `settings` are kept as they were asked for.
    """

    name: str
    settings: Mapping[str, str]
    ordering: Ordering
    placement: Placement
    taking: Taking
    blocking: bool = False
    grid: bool = True
