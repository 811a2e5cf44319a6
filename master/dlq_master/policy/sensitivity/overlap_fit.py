"""The overlap of computing and communicating of this cluster's jobs, fitted to measured runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import sqrt
from typing import NamedTuple

from dlq_common.slowdown import slowdown
from dlq_master.model.estimates.slowdowns import TimedRun

MOST_OVERLAP = 16.0  # from here on the form is max(1, rho) within 5 %
# A fit is believed from so many measured runs on. Each of them, predicted from all the others, may
# be off by no more than this on average.
LEAST_RUNS = 10
LARGEST_ERROR = 0.15
NEWEST = 200  # runs that are fitted
FOLDS = 12  # parts that are left out in turn


class Fit(NamedTuple):
    """`overlap` is g; `error` the mean of |foretold / measured - 1|, each run left out in turn."""

    overlap: float
    error: float
    runs: int

    @property
    def confident(self) -> bool:
        return self.runs >= LEAST_RUNS and self.error <= LARGEST_ERROR


def fit(runs: Iterable[TimedRun]) -> Fit | None:
    """The overlap that fits the spread runs with a rho best; None without any.

    Least squares of the slowdowns, so that those that cost most are foretold best. The error is
    that of runs that the fit has not seen. Each of `FOLDS` parts is left out in turn (each run,
    while there are no more of them).
    """
    pairs = [
        (run.profile.rho, run.slowdown)
        for run in runs
        if run.spread and run.profile.rho is not None
    ][-NEWEST:]
    if not pairs:
        return None
    folds = min(FOLDS, len(pairs))
    misses = []
    for fold in range(folds):
        rest = [pair for place, pair in enumerate(pairs) if place % folds != fold]
        overlap = _overlap(rest or pairs)
        misses += [abs(slowdown(rho, overlap) / took - 1.0) for rho, took in pairs[fold::folds]]
    return Fit(_overlap(pairs), sum(misses) / len(misses), len(pairs))


def _overlap(pairs: Sequence[tuple[float, float]]) -> float:
    """The best g: of a coarse grid, then by golden section between its neighbours."""

    def misfit(overlap: float) -> float:
        misses = [slowdown(rho, overlap) - took for rho, took in pairs]
        return sum([miss * miss for miss in misses], start=0.0)

    best = min(range(len(_GRID)), key=lambda place: misfit(_GRID[place]))
    low, high = _GRID[max(0, best - 1)], _GRID[min(best + 1, len(_GRID) - 1)]
    for _ in range(_STEPS):
        third = (high - low) * _GOLDEN
        left, right = high - third, low + third
        if misfit(left) <= misfit(right):
            high = right
        else:
            low = left
    return (low + high) / 2


_GRID: list[float] = [MOST_OVERLAP ** (place / 12) for place in range(13)]
_STEPS = 12  # the interval shrinks to a three-hundredth
_GOLDEN = (sqrt(5.0) - 1.0) / 2.0
