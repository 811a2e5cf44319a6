"""Jobs that have to be kept on few nodes, by their observed communication."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from dlq_master.model.resources import Shape


class TrafficProfile(NamedTuple):
    """The knowledge of how a job communicates. Nothing of it places by itself: a policy asks.

    `skew`: its largest tensor over its model, 0 to 1 (Tiresias 3.3). `rho`: the time in which it
    sends an iteration's bytes between two nodes, over the time in which it computes the iteration.
    `model_bytes`: the size of its model. `slowdown`: its time for an iteration when it was spread
    over that on as few nodes as can be, if both were measured.
    """

    skew: float | None = None
    rho: float | None = None
    model_bytes: float | None = None
    slowdown: float | None = None


class Packing(NamedTuple):
    """Limits that tell jobs that suffer from being spread from those that do not.

    A slowdown that was measured decides: above `tolerated` the job is kept together. Without one a
    rho is believed outside (`rho_low`, `rho_high`]: up to `rho_low` the job may be spread, above
    `rho_high` it is kept together. Between them, and without a rho, the skew decides: above
    `skew_limit` (PACKLIMIT) it is kept together. For a job without any knowledge: `unknown`.
    """

    skew_limit: float
    rho_low: float = float("-inf")
    rho_high: float = float("inf")
    learned_from: int = 0  # runs that `skew_limit` was learned from; 0: it was set
    tolerated: float | None = None  # None: measured slowdowns decide nothing
    unknown: bool | None = True  # None: as the place stage likes

    def together(self, profile: TrafficProfile | None) -> bool | None:
        """Whether a job with this profile is to be kept on few nodes."""
        skew, rho, _, slowdown = profile or _UNKNOWN
        if slowdown is not None and self.tolerated is not None:
            return slowdown > self.tolerated
        if rho is not None:
            if rho > self.rho_high:
                return True
            if rho <= self.rho_low:
                return False
        return self.unknown if skew is None else skew > self.skew_limit

    def shape(self, shape: Shape, profile: TrafficProfile | None) -> Shape:
        """The shape of a request of a job with this profile. One GPU cannot be spread, and an
        explicit number of nodes is its user's choice."""
        if shape.gpus == 1 or shape.nodes is not None:
            return shape
        return _kept(shape, self.together(profile))

    def cause(self, profile: TrafficProfile | None) -> str:
        """Why the job is kept together, for people."""
        skew, rho, _, slowdown = profile or _UNKNOWN
        if slowdown is not None and self.tolerated is not None:
            return (
                f"spread over nodes it took {slowdown:.2f} times as long (limit {self.tolerated:g})"
            )
        if rho is not None and rho > self.rho_high:
            return (
                f"it would communicate for {rho:.2g} times as long as it computes"
                f" (limit {self.rho_high:.2g})"
            )
        if skew is None:
            return "how it communicates is not known yet"
        learned = f", learned from {self.learned_from} runs" if self.learned_from else ""
        return (
            f"its largest tensor is {skew:.0%} of its model (PACKLIMIT "
            f"{self.skew_limit:.1%}{learned})"
        )


@lru_cache(maxsize=4096)
def _kept(shape: Shape, together: bool | None) -> Shape:
    """One value for all jobs of a shape: a plan and a list ask for that of each."""
    return shape._replace(together=together)


_UNKNOWN = TrafficProfile()
