"""The run of all clusters: arrivals, starts and ends in their order, under one way to choose.

Ways to choose a cluster for a job:

- `home`: that of its user. Nobody else is asked.
- `random`: any, drawn.
- `least-loaded`: the one with the fewest waiting GPUs over free ones, as last told.
- `offers`: the one with the earliest foretold start, as last told; `ask` of them are asked.
- `broadcast`: all of them get the job. The first start cancels the others, `CANCEL_S` later.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from benchmarks.clusters.drawn_jobs import DrawnJobs, Numbers
from benchmarks.clusters.member import Member

WAYS = ("home", "random", "least-loaded", "offers", "broadcast")
# A cancel of a copy reaches its cluster so much later, in s.
CANCEL_S = 0.2
_SAME_S = 60.0


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
    seed: int,
    since_s: float,
    tell: Callable[[int], None],
) -> RunOfClusters:
    """Play all jobs until the last one has ended. All clusters are empty at first, so the time
    before `since_s` does not count as used. `tell` gets the number of arrivals so far.
    """
    run = _Run(jobs, way, members, gpus, told_every_s, ask, seed)
    submits = jobs.submit_s.tolist()
    before_s = None
    for job, at_s in enumerate(submits):
        run.ends_until(at_s)
        if before_s is None and at_s >= since_s:
            before_s, since_s = run.used_s(at_s), at_s
        run.arrive(job, at_s)
        if job % 50_000 == 0:
            tell(job)
    used_s = run.used_s(submits[-1]) - (before_s or 0.0)
    used = used_s / ((submits[-1] - since_s) * members * gpus)
    run.ends_until(float("inf"))
    wait_s = np.array(run.started_s) - jobs.submit_s
    return RunOfClusters(wait_s, run.messages, run.promised, run.kept, run.double_starts, used)


class _Run:
    def __init__(
        self, jobs: DrawnJobs, way: str, members: int, gpus: int, told_every_s: float, ask: int,
        seed: int,
    ) -> None:  # fmt: skip
        self._all = [Member(gpus) for _ in range(members)]
        self._way, self._ask, self._told_every_s = way, min(ask, members), told_every_s
        self._shapes = list(zip(jobs.gpus.tolist(), jobs.foretold_s.tolist(), strict=True))
        self._run_s, self._due_s = jobs.run_s.tolist(), jobs.due_s.tolist()
        self._home = jobs.home.tolist()
        self._sizes = tuple(sorted(set(jobs.gpus.tolist())))
        self._class = {size: number for number, size in enumerate(self._sizes)}
        self._rng = np.random.default_rng(seed)
        self._told_s = [-np.inf] * members
        self._starts = np.zeros((len(self._sizes), members))
        self._loads = np.zeros(members)
        self._next_told_s = 0.0
        self._ends: list[tuple[float, int, int]] = []
        self._promise: dict[int, float] = {}
        self._used_s = 0.0
        self.started_s = [-1.0] * len(self._shapes)
        self.messages = self.promised = self.kept = self.double_starts = 0

    def arrive(self, job: int, now_s: float) -> None:
        """A job is submitted."""
        if self._way == "broadcast":
            self.messages += 4 * len(self._all) - 2  # submit, cancel and their answers
            for number in range(len(self._all)):
                self._all[number].queue.append(job)
                if self.started_s[job] < 0.0:
                    self._start(number, now_s)
            return
        chosen = self._chosen(job, now_s)
        member, (wanted, foretold_s) = self._all[chosen], self._shapes[job]
        self._promise_it(job, member, now_s)
        member.queue.append(job)
        member.waiting_gpus += wanted
        member.foretell(now_s, wanted, foretold_s)
        self._start(chosen, now_s)

    def ends_until(self, at_s: float) -> None:
        """All ends up to this instant, and the starts that they make room for."""
        ends = self._ends
        while ends and ends[0][0] <= at_s:
            end_s, job, number = heappop(ends)
            member = self._all[number]
            member.free += member.running.pop(job)[1]
            if job in self._promise and end_s <= self._promise.pop(job):
                self.kept += 1
            self._start(number, end_s)

    def used_s(self, until_s: float) -> float:
        """GPU-seconds of all starts, without those after this instant."""
        left: float = sum((end_s - until_s) * self._shapes[job][0] for end_s, job, _ in self._ends)
        return self._used_s - left

    # --- helpers, in order of use -----------------------------------------------------------------

    def _chosen(self, job: int, now_s: float) -> int:
        count = len(self._all)
        self.messages += 2  # the submission and its answer
        if self._way == "home":
            return int(self._home[job])
        if self._way == "random":
            return int(self._rng.integers(count))
        self._hear(now_s)
        if self._way == "least-loaded":
            self.messages += 2 * count
            return int(self._loads.argmin())
        self.messages += 2 * self._ask
        starts = self._starts[self._class[self._shapes[job][0]]]
        asked = (
            np.arange(count)
            if self._ask == count
            else self._rng.choice(count, self._ask, replace=False)
        )
        found = starts[asked]
        home = self._home[job]
        # Starts of the same minute are equal: then its own cluster, else any of them.
        best = asked[found <= max(float(found.min()), now_s) + _SAME_S]
        return home if home in best else int(best[self._rng.integers(len(best))])

    def _hear(self, now_s: float) -> None:
        """Each cluster's answer is as old as `told_every_s` at most."""
        if now_s < self._next_told_s:
            return
        self._next_told_s = now_s + self._told_every_s
        for number, member in enumerate(self._all):
            if self._way == "offers":
                member.look_again(now_s, self._shapes)
                self._starts[:, number] = member.starts(now_s, self._sizes)
            self._loads[number] = member.waiting_gpus - member.free

    def _promise_it(self, job: int, member: Member, now_s: float) -> None:
        """The cluster promises a deadline that its own forecast keeps."""
        due_s = self._due_s[job]
        if due_s == np.inf:
            return
        member.look_again(now_s, self._shapes)
        wanted, foretold_s = self._shapes[job]
        if member.starts(now_s, (wanted,))[0] + foretold_s <= due_s:
            self.promised += 1
            self._promise[job] = due_s

    def _start(self, number: int, now_s: float) -> None:
        """Start the jobs at the head of a queue as long as they fit."""
        member = self._all[number]
        queue, started_s = member.queue, self.started_s
        while queue:
            job = queue[0]
            wanted, foretold_s = self._shapes[job]
            if started_s[job] >= 0.0:  # a copy: it runs elsewhere
                if now_s < started_s[job] + CANCEL_S and wanted <= member.free:
                    self.double_starts += 1
                queue.popleft()
                continue
            if wanted > member.free:
                return
            queue.popleft()
            started_s[job] = now_s
            member.free -= wanted
            if self._way != "broadcast":
                member.waiting_gpus -= wanted
            member.running[job] = (now_s + foretold_s, wanted)
            heappush(self._ends, (now_s + self._run_s[job], job, number))
            self._used_s += wanted * self._run_s[job]
