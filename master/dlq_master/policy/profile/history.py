"""When jobs of one family have run for about as long, the next one need not be profiled."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

FEWEST = 5  # completed runs before they count
SPREAD = 1.2  # at most, of the 90th percentile over the median


def trusted_s(runs_s: Sequence[float]) -> float | None:
    """How long the next of them runs, by the median of these run times; None: they say too little."""
    if len(runs_s) < FEWEST:
        return None
    ordered = sorted(runs_s)
    median_s = _percentile(ordered, 0.5)
    return median_s if _percentile(ordered, 0.9) <= SPREAD * median_s else None


def _percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest that at least this share stays within."""
    return ordered[ceil(share * len(ordered) - 1e-9) - 1]
