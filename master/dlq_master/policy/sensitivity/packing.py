"""The limits that a policy packs by: set once, or learned from the runs the cluster has seen.

PACKLIMIT (Tiresias 3.3.2) is the skew above which a job is kept together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import nextafter
from typing import NamedTuple

from dlq_common.slowdown import PACKLIMIT, rho_at
from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.estimates.slowdowns import TimedRun
from dlq_master.model.estimates.traffic import Packing
from dlq_master.policy.sensitivity import overlap_fit


class PackingRule:
    """Limits for one plan; learned limits are worked out once for as long as nothing new is
    learned.

    `skew_limit` None: learned, and `DEFAULT` until there are runs enough. `predicts`: a
    rho goes before the skew where its verdict is certain. That is outside the bounds that no
    overlap can escape, or, once enough runs were predicted well (`Fit.confident`), everywhere.
    `unknown`: the treatment of unknown jobs.
    """

    __slots__ = ("_learned", "_memo", "_predicts", "_skew_limit", "_tolerated", "_unknown")

    def __init__(
        self,
        skew_limit: float | None,
        *,
        predicts: bool,
        tolerated: float,
        unknown: bool | None = True,
    ) -> None:
        self._skew_limit = skew_limit
        self._predicts = predicts
        self._tolerated = tolerated
        self._unknown = unknown
        self._learned: tuple[TimedRun, ...] = ()
        self._memo = self._of(())

    def __call__(self, cluster: Cluster) -> Packing:
        """The limits by what the cluster has learned by now."""
        learned = cluster.slowdowns.learned
        if learned is not self._learned:
            self._learned, self._memo = learned, self._of(learned)
        return self._memo

    def _of(self, runs: tuple[TimedRun, ...]) -> Packing:
        limit, learned_from = self._skew_limit, 0
        if limit is None:
            limit = learn(runs, tolerated=self._tolerated)
            learned_from = 0 if limit is None else sum(run.spread for run in runs)
        if limit is None:
            limit = DEFAULT
        if not self._predicts:
            return Packing(limit, learned_from=learned_from, unknown=self._unknown)
        return Packing(limit, *self._rhos(runs), learned_from, self._tolerated, self._unknown)

    def _rhos(self, runs: tuple[TimedRun, ...]) -> tuple[float, float]:
        """Up to which rho a spread job surely stays within what is tolerated, and from which on
        not.
        """
        tolerated = self._tolerated
        fitted = overlap_fit.fit(runs)
        if fitted is not None and fitted.confident:
            limit = rho_at(tolerated, fitted.overlap)
            return limit, limit
        # 1 + rho, the worst, is tolerated; max(1, rho), the best, is not.
        return tolerated - 1.0, tolerated


DEFAULT = PACKLIMIT
# A spread job that takes longer than this has suffered. At 100 Gbit/s between the nodes VGG16 and
# AlexNet take 1.08 to 1.25 times as long, with the usual overlap, and with none. ResNet and
# Inception take 1.01 to 1.06. These are by the bytes and the computing of the paper's models on its
# GPUs.
TOLERATED = 1.05
# Fewer measured runs of spread jobs than this teach nothing.
LEAST_RUNS = 20


class Cut(NamedTuple):
    """A limit, and how many of the samples it puts on the wrong side."""

    limit: float
    errors: int


def learn(
    runs: Iterable[TimedRun],
    *,
    tolerated: float = TOLERATED,
    default: float = DEFAULT,
    least: int = LEAST_RUNS,
) -> float | None:
    """The skew limit that the runs of spread jobs speak for; None while they are too few.

    A run on few nodes says nothing: it is what the others are compared with. A run without a skew
    is left out.
    """
    skews, suffered = [], []
    for run in runs:
        if run.spread and run.profile.skew is not None:
            skews.append(run.profile.skew)
            suffered.append(run.slowdown > tolerated)
    if len(skews) < least:
        return None
    return classify(skews, suffered, default).limit


def classify(skews: Sequence[float], suffered: Sequence[bool], default: float = DEFAULT) -> Cut:
    """The linear classifier of one feature: `skew > limit` foretells that a job suffers.

    Of all limits the one with the fewest errors. Of those the one farthest from the skews beside
    it, and then the lowest, since a job kept together in vain only waits. If all or none suffered,
    nothing was separated: the default stays, as far as it does not contradict them. O(n log n).
    """
    if not skews:
        return Cut(default, 0)
    if all(suffered):
        return Cut(min(default, nextafter(min(skews), -1.0)), 0)
    if not any(suffered):
        return Cut(max(default, max(skews)), 0)
    rows = sorted(zip(skews, suffered, strict=True))
    ordered = [skew for skew, _ in rows]
    below = [0, *accumulate(hurt for _, hurt in rows)]  # who suffered among the lowest so many
    fine = len(rows) - below[-1]
    distinct = sorted(set(ordered))
    cuts = []
    for left, right in zip([None, *distinct], [*distinct, None], strict=True):
        under = 0 if left is None else bisect_right(ordered, left)
        errors = below[under] + fine - (under - below[under])
        limit, margin = _between(left, right)
        cuts.append((errors, -margin, limit))
    errors, _, limit = min(cuts)
    return Cut(limit, errors)


def _between(left: float | None, right: float | None) -> tuple[float, float]:
    """A limit between two neighbouring skews (None: beyond all), and its distance from them."""
    if left is None:
        return (nextafter(right, -1.0) if right is not None else 0.0), 0.0
    if right is None:
        return left, 0.0
    middle = (left + right) / 2
    return (middle, (right - left) / 2) if left <= middle < right else (left, 0.0)
