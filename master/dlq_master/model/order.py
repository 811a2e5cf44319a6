"""How jobs of one queue are ordered: levels, thresholds, and positions as single integers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# A position is one integer, in stretches that never meet: promoted jobs come first, then jobs by
# their start, then jobs that wait (preempted ones count down from WAITING_BASE, new ones up).
# It stays below 2**53, exact in JSON.
PROMOTED_BASE = -(1 << 50)
STARTED_BASE = 0
STARTED_END = 1 << 49
WAITING_BASE = 1 << 50


class Discipline(StrEnum):
    """What moves a job inside its level."""

    ARRIVAL = "arrival"  # nothing: its place is kept from submission to the end
    REQUEUE = "requeue"  # running jobs first; demoted to the tail, preempted before the waiting
    FIRST_START = "first-start"  # by first start; jobs that never started come last


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """What the indexes of a cluster must know of its policy.

    `thresholds` are the upper bounds, in attained GPU-seconds, of all levels but the last.
    A waiting job is promoted after waiting `promote_knob` x its execution (never from level 0),
    or after `starve_limit_s` without a break; None switches either rule off.
    """

    discipline: Discipline = Discipline.ARRIVAL
    thresholds: tuple[float, ...] = ()
    promote_knob: float | None = None
    starve_limit_s: float | None = None

    def __post_init__(self) -> None:
        if any(
            high <= low for low, high in zip((0.0, *self.thresholds), self.thresholds, strict=False)
        ):
            raise ValueError(f"thresholds must be positive and rise: {self.thresholds}")

    @property
    def levels(self) -> int:
        return len(self.thresholds) + 1

    def rank(self, rank_base: int, level: int) -> int:
        """Lower ranks are served first; a queue's levels are consecutive ranks."""
        return rank_base * self.levels + level
