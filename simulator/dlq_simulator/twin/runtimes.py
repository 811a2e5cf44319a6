"""Estimates of run times, from users' words and their past jobs.

A run time is drawn from the nearest ended jobs, given that this one still runs: from those that
took longer than its present age. Without such jobs it is as likely to double its age as not
(Lindy's rule, a Pareto tail of index 1).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import StrEnum
from math import exp, log
from statistics import NormalDist

from dlq_master.model.jobs.job import Job
from dlq_master.planner.forecasts import PastRuns

# This many of a kind are enough; a family is alike, so fewer are.
_FAMILY_LEAST, _LEAST = 3, 10
_KEPT = 500  # of a kind, the newest
# Without any knowledge: a median, and a spread of the logarithm that leaves most times possible.
_GUESS_S, _GUESS_SPREAD = 1_800.0, 1.8
# A user's estimate, or that of a trial, where nothing shows how good they are.
_ESTIMATE_SPREAD = 0.3
_NORMAL = NormalDist()


class RunTimeBasis(StrEnum):
    """The source of a drawn run time."""

    ESTIMATE = "estimate"  # it was said, or measured in a trial
    FAMILY = "family"  # earlier jobs of the same user and name
    LIMIT = "limit"  # its time limit, and how much of theirs jobs use
    USER = "user"  # earlier jobs of the same user
    ALL = "all"  # earlier jobs of any user
    GUESS = "guess"  # nothing is known


class RunTimes:
    """Ended jobs by kind. Quantiles are numbers: 0.5 is the median."""

    def __init__(self, past: Iterable[PastRuns]) -> None:
        families: dict[tuple[str, str], list[float]] = defaultdict(list)
        users: dict[str, list[float]] = defaultdict(list)
        everybody: list[float] = []
        of_limits: list[float] = []
        of_estimates: list[float] = []
        for job in past:
            families[job.user, job.name].append(job.run_s)
            users[job.user].append(job.run_s)
            everybody.append(job.run_s)
            if job.limit_s:
                of_limits.append(min(1.0, job.run_s / job.limit_s))
            if job.estimate_s:
                of_estimates.append(job.run_s / job.estimate_s)
        self._families = {name: _newest(runs, _FAMILY_LEAST) for name, runs in families.items()}
        self._users = {user: _newest(runs, _LEAST) for user, runs in users.items()}
        self._all = _newest(everybody, _LEAST)
        self._limits = _newest(of_limits, _LEAST)
        self._estimates = _newest(of_estimates, _LEAST)

    def work_s(self, job: Job, done_s: float, quantile: float) -> float:
        """Seconds of work of a job that has done `done_s` and still runs: more than that, within
        its limit.
        """
        samples, scale_s, _ = self._kind(job)
        if samples:
            work_s = _given(samples, scale_s, done_s, quantile)
        else:
            centre_s, spread = (scale_s, _ESTIMATE_SPREAD) if scale_s else (_GUESS_S, _GUESS_SPREAD)
            work_s = _lognormal(centre_s, spread, done_s, quantile)
        limit_s = job.limit_at_start_s
        return work_s if limit_s is None else min(work_s, job.total_executed_s + limit_s)

    def basis(self, job: Job) -> RunTimeBasis:
        """The source of its run time."""
        return self._kind(job)[2]

    def _kind(self, job: Job) -> tuple[Sequence[float], float, RunTimeBasis]:
        """Run times of jobs like this in ascending order, as multiples of the unit.

        Without any, the unit is the run time that its user names; 0: none is named.
        """
        if job.duration_estimate_s:
            return self._estimates, job.duration_estimate_s, RunTimeBasis.ESTIMATE
        family = self._families.get((job.user, job.name))
        if family:
            return family, 1.0, RunTimeBasis.FAMILY
        if job.time_limit_s and self._limits:
            return self._limits, job.time_limit_s, RunTimeBasis.LIMIT
        user = self._users.get(job.user)
        if user:
            return user, 1.0, RunTimeBasis.USER
        return (self._all, 1.0, RunTimeBasis.ALL) if self._all else ((), 0.0, RunTimeBasis.GUESS)


def _newest(values: Sequence[float], least: int) -> tuple[float, ...]:
    """The newest in ascending order; none if they are too few."""
    return tuple(sorted(values[-_KEPT:])) if len(values) >= least else ()


def _given(samples: Sequence[float], scale_s: float, done_s: float, quantile: float) -> float:
    """The quantile of the samples above `done_s`."""
    first = bisect_right(samples, done_s / scale_s)
    left = len(samples) - first
    if not left:
        return _aged(done_s, quantile)
    place = quantile * (left - 1)
    below = int(place)
    low = samples[first + below]
    high = samples[min(first + below + 1, len(samples) - 1)]
    return max(done_s, scale_s * (low + (place - below) * (high - low)))


def _lognormal(centre_s: float, spread: float, done_s: float, quantile: float) -> float:
    """The same quantile of a lognormal distribution around `centre_s`."""
    over = _NORMAL.cdf(log(done_s / centre_s) / spread) if done_s > 1.0 else 0.0
    share = max(1e-6, over + quantile * (1.0 - over))
    if over > 0.99 or share >= 1.0:
        return _aged(done_s, quantile)
    return max(done_s, centre_s * exp(spread * _NORMAL.inv_cdf(share)))


def _aged(done_s: float, quantile: float) -> float:
    """The quantile for a job older than all known ones."""
    return done_s / max(0.05, 1.0 - quantile)
