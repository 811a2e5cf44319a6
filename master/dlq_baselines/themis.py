"""Finish-time fairness: the jobs whose sharing costs most are offered the GPUs first (Themis, NSDI
2020).

rho = T_shared / T_ideal of a job. T_shared runs from its submission to its end, were it left alone
from now on. T_ideal is its run time alone in the cluster. At every boundary the leases that are
over are auctioned.

Simplifications against the paper (3.3, 5), and their reasons:
- An app is one job, and a job is a gang of one width: its bid has one row, all of its GPUs or none.
- A bid's value is 1 / rho. A job that gets nothing now is valued as if it got its GPUs one lease
  later, where the paper's rho has no bound. The product of the values is the greatest if the sum
  over the winners of log(rho after / rho now) is. That is a knapsack, filled by value per GPU. It
  misses the best by less than the value of one job; the place stage chooses the nodes of a winner.
- No hidden payments: they make bidders tell the truth, and here nobody bids but the scheduler
itself.
- GPUs that the bidders leave go to the others with the greatest rho first, not by chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, inf, log1p
from typing import NamedTuple

from dlq_master.model.jobs.job import Job
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.view import View
from dlq_master.policy.order.by_key import left_s
from dlq_master.policy.order.ordered import by_priority, lined_up


@dataclass(frozen=True, slots=True, kw_only=True)
class Auction:
    """`fairness` is the paper's f: the share 1 - f of the jobs with the greatest rho may bid."""

    fairness: float = 0.8

    @property
    def anew(self) -> bool:
        return True

    def lineup(self, view: View, margin: float) -> Lineup:
        """An auction in each priority. Costs O(n log n) over all jobs that wait or run."""
        cluster = view.cluster
        priorities = by_priority(cluster).items()
        return lined_up(
            cluster, ((priority, in_order(view, self, jobs)) for priority, jobs in priorities)
        )


class Bid(NamedTuple):
    """The answer of a job to an auction; inf where its run time is 0."""

    job: Job
    rho: float
    value: float  # log(rho one lease later / rho now), of each GPU


def bid(view: View, job: Job) -> Bid | None:
    """None: nobody knows its run time."""
    total_s, left = job.duration_estimate_s, left_s(view.cluster, job, view.now_s)
    if total_s is None or left is None:
        return None
    shared_s = max(0.0, view.now_s - job.submit_time_s) + left
    if not total_s or not shared_s:
        return Bid(job, inf, inf)
    lease_s = view.cluster.terms.be_term_s
    return Bid(job, shared_s / total_s, log1p(lease_s / shared_s) / job.request.gpus)


def in_order(view: View, auction: Auction, jobs: list[Job]) -> list[Job]:
    """The bidders by value, then who may not bid by rho, then those of unknown run time; ties in
    the order of arrival."""
    bids, unknown = [], []
    for job in sorted(jobs, key=lambda job: job.sequence):
        made = bid(view, job)
        if made is None:
            unknown.append(job)
        else:
            bids.append(made)
    bids.sort(key=lambda made: -made.rho)
    count = ceil((1.0 - auction.fairness) * len(bids) - 1e-9)
    bidders = sorted(bids[:count], key=lambda made: -made.value)
    return [made.job for made in (*bidders, *bids[count:])] + unknown
