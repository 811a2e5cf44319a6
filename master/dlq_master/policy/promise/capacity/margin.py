"""How much more than its estimate a promise reserves, learned from how wrong estimates were."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, isfinite

SHARE = 0.95  # of past jobs that a margin would have covered
FEWEST = 20  # jobs before history counts
UNKNOWN = 0.2  # the margin before
MOST = 1.0


def learned_margin(
    ratios: Iterable[float], share: float = SHARE, unknown: float = UNKNOWN, most: float = MOST
) -> float:
    """The part of an estimate to add: the quantile of real over estimated run times, less 1.

    `ratios` are those of jobs that have ended; nothing is added for jobs that ended early. Before
    `FEWEST` jobs the margin is `unknown`. ValueError names a ratio that is not positive and finite.
    """
    ordered = sorted(ratios)
    wrong = next((ratio for ratio in ordered if not (isfinite(ratio) and ratio > 0)), None)
    if wrong is not None:
        raise ValueError(f"a real run time of {wrong:g} estimates is no sample: want more than 0")
    if len(ordered) < FEWEST:
        return unknown
    return min(most, max(0.0, ordered[ceil(share * len(ordered)) - 1] - 1))


def reserved_s(estimate_s: float, margin: float) -> float:
    """`work_s` of a guaranteed job. Resumes are not part of it: a plan charges one for each
    segment.
    """
    return estimate_s * (1 + margin)
