"""The margin that a promise adds to an estimate, so that a target share of promises is kept.

The errors of ended jobs, real over estimated run time, say how wrong the next estimate may be.
Split conformal prediction takes the ceil((n + 1) s)-th smallest of n errors. The next error is no
larger with a probability of at least s, whatever the distribution. A family with enough errors uses
its own; others use those of all jobs.

A job that exceeds its reservation may still be in time, because it runs ahead of its slots. And
promised jobs are not a fair sample of all jobs. So the coverage s follows the outcomes (adaptive
conformal inference, Gibbs and Candes 2021). At most `LOOSEST` times the target's risk stays
uncovered. Each promise that a wrong estimate broke takes `STEP` from that, and each kept one gives
a little back. In the long run no more than the target's risk of all promises break for that reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil, isfinite
from typing import NamedTuple

KEEP = 0.99  # of promises
FEWEST = 20  # jobs before history counts
DECLARED = 0.2  # the least margin of a user's estimate until then: users rather overestimate
MEASURED = 0.5  # and that of a measured estimate
MOST = 1.0
STEP = 0.05  # by which the coverage follows an outcome
LOOSEST = 5.0  # times the target's risk may stay uncovered
DEEPEST = 0.5  # how far broken promises in a row can push the uncovered share below 0


class RunErrors(NamedTuple):
    """Real over estimated run times of ended jobs: `ratios` of all, and `own` of one family.

    `outcomes`: 1 for each promise that a wrong estimate broke, 0 for each kept one, the latest
    last. `before`: the least margin while there are fewer than `FEWEST` errors.
    """

    ratios: Sequence[float]
    own: Sequence[float] = ()
    outcomes: Sequence[float] = ()
    before: float = DECLARED


def learned_margin(errors: RunErrors, keep: float = KEEP) -> float:
    """The share of an estimate to add, 0 to `MOST`.

    With fewer than `FEWEST` errors it is that of the largest error, and at least `before`.
    ValueError: a ratio is not positive and finite.
    """
    covered = coverage(errors.outcomes, keep)
    own, every = _checked(errors.own), _checked(errors.ratios)
    for ordered in (own, every):
        place = _place(len(ordered), covered)
        if place <= len(ordered) and len(ordered) >= FEWEST:
            return _margin(ordered[place - 1])
    largest = _margin(max([*own, *every], default=1.0))
    return largest if len(every) >= FEWEST else max(errors.before, largest)


def coverage(outcomes: Iterable[float], keep: float = KEEP) -> float:
    """The share of errors that a margin must cover after these outcomes."""
    risk = 1.0 - keep
    miss = LOOSEST * risk
    for outcome in outcomes:
        miss = min(LOOSEST * risk, max(-DEEPEST, miss + STEP * (risk - outcome)))
    return 1.0 - max(0.0, miss)


# --- helpers, in order of use ---------------------------------------------------------------------


def _checked(ratios: Sequence[float]) -> list[float]:
    ordered = sorted(ratios)
    wrong = next((ratio for ratio in ordered if not (isfinite(ratio) and ratio > 0)), None)
    if wrong is not None:
        raise ValueError(f"a real run time of {wrong:g} estimates is no sample: want more than 0")
    return ordered


def _place(count: int, covered: float) -> int:
    """The rank of the error, in rising order, that covers this share; beyond `count` if there are
    too few errors.
    """
    return max(1, ceil((count + 1) * covered - 1e-9))


def _margin(ratio: float) -> float:
    return min(MOST, max(0.0, ratio - 1.0))
