"""Trusts the run times of a job's family, so that its next job needs no trial."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2
from typing import NamedTuple

from dlq_master.model.estimates.estimate import Confidence

FEWEST = 5  # completed runs before they count
SPREAD = 1.2  # at most, of the 90th percentile over the median
SURE = 10, 1.1  # runs, and their spread, that are as good as can be


class Trusted(NamedTuple):
    """How long the next of them runs."""

    run_s: float
    confidence: Confidence


def trusted(runs_s: Sequence[float]) -> Trusted | None:
    """By the median of these run times; None: they say too little."""
    if len(runs_s) < FEWEST:
        return None
    ordered = sorted(runs_s)
    median_s = _percentile(ordered, 0.5)
    spread = _percentile(ordered, 0.9) / median_s
    if spread > SPREAD:
        return None
    least, most = SURE
    sure = len(runs_s) >= least and spread <= most
    return Trusted(median_s, Confidence.HIGH if sure else Confidence.MEDIUM)


def _percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest that at least this share stays within."""
    return ordered[ceil(share * len(ordered) - 1e-9) - 1]


def on_nodes(one_s: float, two_s: float, nodes: int) -> float:
    """t_n = t_1 + log2(n) (t_2 - t_1): seconds on `nodes` nodes of what takes so long on one and on
    two.

    Computing takes the same time on every node, exchanging what was computed a step for each
    doubling. ValueError if there are no nodes, or a time is not positive.
    """
    if nodes < 1 or one_s <= 0.0 or two_s <= 0.0:
        raise ValueError(f"no pace: {one_s:g} s on one node, {two_s:g} s on two, {nodes} nodes")
    return max(one_s, one_s + log2(nodes) * (two_s - one_s))
