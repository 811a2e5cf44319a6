"""How much slower a job gets on a slower link: the master's own words and formulas.

They live in `dlq_common.slowdown`, which is pure and light; the place stage uses
them with these measurements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dlq_common.slowdown import OVERLAP, PACKLIMIT, Bounds, bounds, rho_of, slowdown
from dlq_profiler.results import Interval, JobProfile

# Nominal rates of a node's link, in bytes per second.
LINKS: Mapping[str, float] = {
    "10G": 1.25e9,
    "25G": 3.125e9,
    "100G": 12.5e9,
    "200G": 25e9,
    "400G": 50e9,
}


class Prediction(NamedTuple):
    """The prediction for one link: `rho`, and by how much an iteration takes longer."""

    rho: float
    slowdown: float  # with the usual overlap
    bounds: Bounds  # perfect overlap, and none


def predict(profile: JobProfile, links: Mapping[str, float]) -> dict[str, Prediction] | None:
    """For each link, by its rate in bytes/s; None while bytes or period are unknown.

    The iteration time of the trial stands for the computing time. That is right where the trial ran
    on few nodes or on a fast link; else rho comes out too small.
    """
    if profile.bytes_per_iteration is None or not profile.period_s:
        return None
    found = {}
    for name, bytes_per_s in links.items():
        rho = rho_of(profile.bytes_per_iteration, profile.period_s, bytes_per_s)
        found[name] = Prediction(rho, slowdown(rho, OVERLAP), bounds(rho))
    return found


def skew_word(skew: Interval | None) -> str:
    """`high` or `low` where the whole interval lies on one side of PACKLIMIT; else `unknown`."""
    if skew is None:
        return "unknown"
    if skew.lower > PACKLIMIT:
        return "high"
    return "low" if skew.upper <= PACKLIMIT else "unknown"
