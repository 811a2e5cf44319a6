"""Expected reward against a distribution of run times: `3sigma`, as Chronus compares itself with it
(4.3).

3Sigma (Park et al., EuroSys 2018) chooses who starts by an integer program over the expected
utility of every job and start; SLO jobs do not preempt each other, best-effort jobs make room. With
`plan=program` it does (`three_sigma_program`). This is a baseline made from that summary, and
simpler. At every plan each waiting SLO job has an
expected reward for a start now. The job with the most for each GPU-second that it is expected to
take goes first, as in a knapsack. A job that can earn nothing any more stands behind with the
best-effort jobs. The order of a priority is

    SLO jobs that run | SLO jobs that wait | who else runs | who else waits

- The distribution is that of run time over estimate. 3Sigma has one for each feature of a job, from
  history. Here it is one for all: normal, as the simulator draws the errors of estimates, cut into
  `SHARES` parts of the same chance. Run times that are known exactly have none.
- Under-estimates: a job that has outlived all of its distribution is expected to take as long again
  as it has run. (3Sigma: exponentially longer, cycle by cycle.)
- Over-estimates: the case is that not even the smaller half of the run times would have made the
  last deadline from submission. Then the estimate is distrusted and not the deadline, since its
  user set it. The last reward falls to nothing over one estimate behind the last deadline, instead
  of at once. (3Sigma has a linear decay as well, where the chance to miss was high from the start.)
- No start is put off while GPUs are free. 3Sigma plans ahead and may leave them idle for a wider
  job.
- All steps of a reward count. The paper's 3Sigma sees the first deadline only (5.4, MIX2): this is
the stronger baseline.
- It plans at every event and takes GPUs away at boundaries, not every 60 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple, Self

from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.reward import LATE, attained
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.view import View
from dlq_master.policy.order.ordered import by_priority, lined_up

SHARES = 9
_LEAST = 0.1  # of an estimate: no run time is shorter
_SOON_S = 1.0  # a job that is about to end has a finite worth


class Expected(NamedTuple):
    """The expectation of a job that starts now: reward beyond that of a late job, and seconds to
    run.
    """

    reward: float
    runs_s: float


class Chances(NamedTuple):
    """Run time over estimate: equally likely ratios, the smallest first."""

    ratios: tuple[float, ...] = (1.0,)

    @property
    def anew(self) -> bool:
        return True

    def lineup(self, view: View, margin: float) -> Lineup:
        """All jobs by what they may expect now. Costs O(n log n) over all that wait or run."""
        cluster, priorities = view.cluster, by_priority(view.cluster).items()
        return lined_up(
            cluster, ((priority, in_order(view, self, jobs)) for priority, jobs in priorities)
        )

    @classmethod
    def normal(cls, spread: float) -> Self:
        """Of this standard deviation around 1; 0: exact."""
        if not spread:
            return cls()
        normal = NormalDist(1.0, spread)
        middles = [(part + 0.5) / SHARES for part in range(SHARES)]
        return cls(tuple([max(_LEAST, normal.inv_cdf(middle)) for middle in middles]))

    def of(self, job: Job, now_s: float) -> Expected | None:
        """For a job with deadlines that waits; None: nobody knows its run time."""
        estimate_s, done_s = job.duration_estimate_s, job.worked_s
        if estimate_s is None:
            return None
        waited_s = now_s - job.submit_time_s
        left = self.left_s(estimate_s, done_s)
        last = job.steps[-1]
        distrusted = len(self.ratios) > 1 and self._median * estimate_s > last.deadline_s
        reward = 0.0
        for left_s in left:
            ends_s = waited_s + left_s
            reward += attained(job.steps, ends_s) - LATE
            if distrusted and ends_s > last.deadline_s:
                late = (ends_s - last.deadline_s) / estimate_s
                reward += max(0.0, 1.0 - late) * (last.reward - LATE)
        return Expected(reward / len(left), sum(left) / len(left))

    def left_s(self, estimate_s: float, done_s: float) -> list[float]:
        """The run times that are left after `done_s`, equally likely."""
        left = [ratio * estimate_s - done_s for ratio in self.ratios]
        return [left_s for left_s in left if left_s > 0.0] or [done_s]

    @property
    def _median(self) -> float:
        return self.ratios[len(self.ratios) // 2]


def in_order(view: View, chances: Chances, jobs: Sequence[Job]) -> list[Job]:
    """The jobs of one priority. An SLO job of unknown run time is the last of those that wait with
    hope.
    """
    runs: list[Job] = []
    rest: list[Job] = []
    hopeful: list[tuple[float, int, Job]] = []
    for job in jobs:
        if job.live_attempt is not None:
            (runs if job.steps else rest).append(job)
            continue
        worth = _worth(job, chances.of(job, view.now_s)) if job.steps else None
        if worth is None:
            rest.append(job)
        else:
            hopeful.append((-worth, job.sequence, job))
    runs.sort(key=lambda job: job.sequence)
    hopeful.sort()
    rest.sort(key=lambda job: (job.live_attempt is None, job.sequence))
    return [*runs, *[job for _, _, job in hopeful], *rest]


def _worth(job: Job, expected: Expected | None) -> float | None:
    """Reward for each GPU-second; None: there is none to be had."""
    if expected is None:
        return 0.0
    if not expected.reward:
        return None
    return expected.reward / (job.request.gpus * max(expected.runs_s, _SOON_S))
