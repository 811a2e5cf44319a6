"""The order of jobs that name a cost of being late: the one that loses most by waiting first.

An order by the least rest knows neither due dates nor what a late hour costs. So jobs with such a
cost change places among themselves, by their apparent tardiness cost (Vepsalainen and Morton,
1987). That is the cost of an hour over the rest of the job. It counts whole once the job can no
longer wait and be in time, and less with the time that it still has. `policy.priced.marginal`
weighs alike, with the same look ahead. No other job moves, and no place of theirs is taken by one.
Jobs change places with those of their own user alone. So nobody overtakes another user by a high
cost or an early date.

A job without a run time is expected to need half of the time to its due date. After that date it is
expected to run as long again as it did. A job that has waited too long to be passed keeps its
place. So do all where more than a thousand jobs name a cost: each plan works their places out anew.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import fsum, inf, log
from typing import NamedTuple

from dlq_master.model.cluster.cluster import Cluster
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job, Lateness
from dlq_master.model.order.keys import Had, had
from dlq_master.model.order.lineup import Lineup
from dlq_master.model.order.running import RunningByKey
from dlq_master.model.view import View
from dlq_master.policy.order.expected_left import expected_s
from dlq_master.policy.order.stage import KEPT_ORDER, Order
from dlq_master.policy.stop_costs import stop_s

MOST_COSTLY = 1000  # that wait or run
MOST_WAITING = 10_000  # of all jobs
LOOKAHEAD = 1.5  # in mean rests, as `lookahead` of `gpuaas-marginal`

_SPOT = Band.SPOT
_LEAST_GPUS = 1e-3  # that CPU cores count for


class Costly(NamedTuple):
    """A job with a cost of being late, and its place by key. `rest_s`: to its end if it goes on."""

    job: Job
    cost: Lateness
    place: int
    rest_s: float


class ByLateness(NamedTuple):
    """`others`: the order where no job names such a cost. `profile_s` and `aging`: as in the order
    by key (`expected_left`). A job that has waited for its rest over this rate is not passed.
    """

    others: Order
    profile_s: float | None
    aging: float

    @property
    def anew(self) -> bool:
        """False: it moves a bounded number of jobs."""
        return self.others.anew

    def lineup(self, view: View, margin: float) -> Lineup:
        """All jobs in order."""
        cluster = view.cluster
        if not 1 < len(cluster.costly) <= MOST_COSTLY or cluster.waiting.count > MOST_WAITING:
            return self.others.lineup(view, margin)
        kept = KEPT_ORDER.lineup(view, margin)
        moved: dict[JobId, int] = {}
        for contenders in self._contenders(view, kept, margin).values():
            moved |= _changed(contenders, view.now_s)
        return _moved(cluster, kept, moved) if moved else kept

    def _contenders(
        self, view: View, kept: Lineup, margin: float
    ) -> Mapping[tuple[int, str], list[Costly]]:
        """Jobs that may change places, by priority and user."""
        cluster, runs = view.cluster, view.cluster.running.places
        found: dict[tuple[int, str], list[Costly]] = defaultdict(list)
        for job_id in cluster.costly:
            job = cluster.jobs[job_id]
            if job.band is _SPOT and (job.waiting or job_id in runs):
                priority = cluster.priority(job)
                place = kept.position(priority, cluster.shape(job), job_id)
                costly = self._costly(view, job, place, margin)
                if costly is not None:
                    found[priority, job.user].append(costly)
        return found

    def _costly(self, view: View, job: Job, place: int, margin: float) -> Costly | None:
        """None: nobody may pass it. A running job stands ahead by its stop, as in the order by
        key."""
        cluster, now_s, cost = view.cluster, view.now_s, job.lateness
        assert cost is not None
        attempt = cluster.live_attempt(job)
        kept_s = margin * stop_s(cluster, job, attempt, now_s) if margin else 0.0
        has_had = had(job, attempt, now_s, kept_s)
        seconds = expected_s(job, has_had, self.profile_s)
        if seconds is None:
            seconds = _guessed_s(job, cost, has_had)
        if (now_s - has_had.unaged_s) * self.aging > seconds:
            return None
        return Costly(job, cost, place, max(1.0, seconds / job.speed_on(job.request.base)))


def _guessed_s(job: Job, cost: Lateness, had: Had) -> float:
    done_s = had.executed_s
    left_s = cost.due_s - job.submit_time_s - done_s
    return max(0.0, (left_s / 2.0 if left_s > 0.0 else done_s) - had.kept_s)


def _changed(contenders: list[Costly], now_s: float) -> dict[JobId, int]:
    """The new place of each that moves: those of all of them, the greatest loss first."""
    mean_s = fsum([one.rest_s for one in contenders]) / len(contenders)  # in whatever order
    places = sorted([one.place for one in contenders])
    ranked = sorted(contenders, key=lambda one: (-_loss(one, mean_s, now_s), one.place))
    return {
        one.job.job_id: place
        for one, place in zip(ranked, places, strict=True)
        if one.place != place
    }


def _loss(one: Costly, mean_s: float, now_s: float) -> float:
    """The logarithm of its apparent tardiness cost, over the root of its GPUs as in the order by
    key."""
    if one.cost.weight <= 0.0:
        return -inf
    request = one.job.request
    slack_s = max(0.0, one.cost.due_s - now_s - one.rest_s)
    # Not of the quotient, which rounds to nothing for the least of weights.
    each = log(one.rest_s) + log(max(_LEAST_GPUS, request.weighed(request.base))) / 2.0
    return log(one.cost.weight) - each - slack_s / (LOOKAHEAD * mean_s)


def _moved(cluster: Cluster, kept: Lineup, moved: Mapping[JobId, int]) -> Lineup:
    """The line-up with these jobs in these places."""
    running = kept.running

    def stands(job_id: JobId) -> int:
        place = moved.get(job_id)
        return running.position(job_id) if place is None else place

    waiting = kept.waiting.rearranged(
        [
            (cluster.priority(job), cluster.shape(job), job_id, place)
            for job_id, place in moved.items()
            if (job := cluster.jobs[job_id]).waiting
        ]
    )
    return Lineup(waiting, RunningByKey(cluster.running, stands), together=False)
