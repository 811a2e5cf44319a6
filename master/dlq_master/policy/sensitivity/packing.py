"""The limits that a policy packs by: set once, or learned from the runs the cluster has seen."""

from __future__ import annotations

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.estimates.slowdowns import TimedRun
from dlq_master.model.estimates.traffic import Packing
from dlq_master.policy.sensitivity import packlimit, slowdown


class PackingRule:
    """Limits for one plan; learned limits are worked out once for as long as nothing new is
    learned.

    `skew_limit` None: learned, and `packlimit.DEFAULT` until there are runs enough. `predicts`: a
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
            limit = packlimit.learn(runs, tolerated=self._tolerated)
            learned_from = 0 if limit is None else sum(run.spread for run in runs)
        if limit is None:
            limit = packlimit.DEFAULT
        if not self._predicts:
            return Packing(limit, learned_from=learned_from, unknown=self._unknown)
        return Packing(limit, *self._rhos(runs), learned_from, self._tolerated, self._unknown)

    def _rhos(self, runs: tuple[TimedRun, ...]) -> tuple[float, float]:
        """Up to which rho a spread job surely stays within what is tolerated, and from which on
        not.
        """
        tolerated = self._tolerated
        fitted = slowdown.fit(runs)
        if fitted is not None and fitted.confident:
            limit = slowdown.rho_at(tolerated, fitted.overlap)
            return limit, limit
        # 1 + rho, the worst, is tolerated; max(1, rho), the best, is not.
        return tolerated - 1.0, tolerated
