"""The run of all clusters: every job in its order, under one way to choose.

Ways to choose a cluster for a job:

- `home`: that of its user. Nobody else is asked.
- `random`: any, drawn.
- `least-loaded`: the one with the fewest waiting GPUs over free ones, as last told.
- `offers`: the one with the earliest foretold start, as last told; `ask` of them are asked, and
  `choose` says which of them gets the job (`CHOICES`).
- `broadcast`: all of them get the job (`broadcast`).

Clusters do not touch each other. So between two answers all jobs are dealt out at once, and each
cluster plays its own ones.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.clusters.broadcast import play_broadcast
from benchmarks.clusters.drawn_jobs import DrawnJobs, Numbers
from benchmarks.clusters.member import Member

WAYS = ("home", "random", "least-loaded", "offers", "broadcast")
# The rules for offers. `own-first`: the earliest start; of equal ones the cluster of its user, as
# the first of the user's list. `by-lot`: of equal ones any. `spread`: the same, with each start
# drawn from its range, as dlq_broker.choosing does.
CHOICES = ("own-first", "by-lot", "spread")
# Starts are compared to the minute.
_SAME_S = 60.0
# Of a drawn wait over the foretold one, the standard deviation of the logarithm.
SPREAD = 0.25
# So many jobs are dealt out at once at most: offers take an entry for each job and cluster.
_AT_ONCE = 10_000


class RunOfClusters(NamedTuple):
    """Of one run. `wait_s`: of each job; `promised` and `kept`: deadlines."""

    wait_s: Numbers
    messages: int
    promised: int
    kept: int
    double_starts: int
    used: float  # the share of GPU-time from `since_s` to the last submission


def run_clusters(
    jobs: DrawnJobs,
    way: str,
    *,
    members: int,
    gpus: int,
    told_every_s: float,
    ask: int,
    choose: str,
    seed: int,
    since_s: float,
    tell: Callable[[int], None],
) -> RunOfClusters:
    """Play all jobs until the last one has ended. All clusters are empty at first, so the time
    before `since_s` does not count as used. `tell` gets the number of arrivals so far.
    """
    count, promised, kept, doubles = len(jobs.submit_s), 0, 0, 0
    if way == "broadcast":
        starts_s, doubles = play_broadcast(jobs, members, gpus, seed, tell)
        messages = (4 * members - 2) * count  # submit, cancel and their answers
    else:
        run = _Run(jobs, way, members, gpus, min(ask, members), choose, seed)
        starts_s = run.play(told_every_s, tell)
        asked = {"offers": run.ask, "least-loaded": members}.get(way, 0)
        messages = 2 * (asked + 1) * count  # each question, the submission, and their answers
        promised = sum(one.promised for one in run.all)
        kept = sum(one.kept for one in run.all)
    until_s = float(jobs.submit_s[-1])
    ends_s = np.minimum(starts_s + jobs.run_s, until_s)
    held_s = np.maximum(0.0, ends_s - np.maximum(starts_s, since_s))
    used = float(held_s @ jobs.gpus) / ((until_s - since_s) * members * gpus)
    return RunOfClusters(starts_s - jobs.submit_s, messages, promised, kept, doubles, used)


class _Run:
    def __init__(
        self,
        jobs: DrawnJobs,
        way: str,
        members: int,
        gpus: int,
        ask: int,
        choose: str,
        seed: int,
    ) -> None:
        self._jobs, self._way, self.ask, self._choose = jobs, way, ask, choose
        self.all = [Member(gpus) for _ in range(members)]
        self._sizes, self._class = np.unique(jobs.gpus, return_inverse=True)
        self._rng = np.random.default_rng((seed, 1))  # another stream than that of the jobs
        self._starts = np.zeros((len(self._sizes), members))
        self._loads = np.zeros(members)

    def play(self, told_every_s: float, tell: Callable[[int], None]) -> Numbers:
        """The starts of all jobs. Each cluster's answer is as old as `told_every_s` at most."""
        submit_s = self._jobs.submit_s
        starts_s, begin, count = np.empty(len(submit_s)), 0, len(submit_s)
        hears = self._way in ("offers", "least-loaded")
        while begin < count:
            now_s = float(submit_s[begin])
            self._hear(now_s)
            until_s = now_s + told_every_s if hears else inf
            told = max(begin + 1, int(np.searchsorted(submit_s, until_s)))
            while begin < told:
                some = slice(begin, min(told, begin + _AT_ONCE))
                starts_s[some] = self._dealt(some)
                begin = some.stop
                tell(begin)
        return starts_s

    # --- helpers, in order of use -----------------------------------------------------------------

    def _hear(self, now_s: float) -> None:
        if self._way == "offers":
            sizes = self._sizes.tolist()
            for number, member in enumerate(self.all):
                self._starts[:, number] = member.starts(now_s, sizes)
        elif self._way == "least-loaded":
            self._loads = np.array([member.load(now_s) for member in self.all])

    def _dealt(self, some: slice) -> Numbers:
        """Each cluster plays its own of these jobs."""
        jobs, chosen = self._jobs, self._chosen(some)
        order = np.argsort(chosen, kind="stable")
        ends = np.cumsum(np.bincount(chosen, minlength=len(self.all))).tolist()
        told = (jobs.submit_s, jobs.gpus, jobs.run_s, jobs.foretold_s, jobs.due_s)
        facts = list(zip(*(one[some][order].tolist() for one in told), strict=True))
        found, begin = [], 0
        for member, end in zip(self.all, ends, strict=True):
            if begin < end:
                found += member.play(facts[begin:end])
            begin = end
        starts_s = np.empty(len(order))
        starts_s[order] = found
        return starts_s

    def _chosen(self, some: slice) -> NDArray[np.int64]:
        """The cluster of each of these jobs, by the answers as last told."""
        jobs, members = self._jobs, len(self.all)
        home = jobs.home[some]
        if self._way == "home":
            return home
        if self._way == "random":
            return self._rng.integers(members, size=len(home))
        if self._way == "least-loaded":
            return np.full(len(home), self._loads.argmin())
        asked = drawn(self._rng, len(home), members, self.ask)
        at_s = jobs.submit_s[some, None]
        wait_s = np.maximum(self._starts[self._class[some, None], asked] - at_s, 0.0)
        if self._choose == "spread":
            wait_s = wait_s * np.exp(SPREAD * self._rng.standard_normal(wait_s.shape))
        minute = (at_s + wait_s) // _SAME_S
        best = minute <= minute.min(axis=1)[:, None]
        any_of_them = self._rng.uniform(size=len(home)) * best.sum(axis=1)
        place = (best.cumsum(axis=1) > any_of_them[:, None]).argmax(axis=1)
        if self._choose == "own-first":
            own = best & (asked == home[:, None])
            place = np.where(own.any(axis=1), own.argmax(axis=1), place)
        found: NDArray[np.int64] = asked[np.arange(len(home)), place]
        return found


def drawn(rng: np.random.Generator, rows: int, count: int, several: int) -> NDArray[np.int64]:
    """In each row `several` different numbers below `count`, by Floyd's way to draw a subset."""
    if several == count:
        return np.broadcast_to(np.arange(count), (rows, count))
    found = np.full((rows, several), -1)
    for place, last in enumerate(range(count - several, count)):
        one = rng.integers(last + 1, size=rows)
        again = (found == one[:, None]).any(axis=1)
        found[:, place] = np.where(again, last, one)
    return found
