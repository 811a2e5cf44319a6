"""Submission control: the jobs that one user may send to trials within the time of a trial
(Chronus, 3.2.1).
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.view import View
from dlq_master.policy.admit.estimates import is_sure
from dlq_master.policy.partition.profiling import charged, node_gpus
from dlq_master.policy.promise.capacity.grids import home_type
from dlq_master.policy.trial.rules import TrialRules

NOT_YET_S = float("inf")


class Late(NamedTuple):
    """A job that may not enter yet: its user has sent so many GPUs, and the first may again at
    `opens_s`.
    """

    sent_gpus: int
    opens_s: float


class _Window:
    """The jobs that a user has sent, and those that still count, by the time when they stop to."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.ends: list[tuple[float, int]] = []  # in the order of instants
        self.late: Late | None = None

    @property
    def gpus(self) -> int:
        return sum(gpus for _, gpus in self.ends)

    def enter(self, gpus: int, end_s: float) -> Late | None:
        """It counts until `end_s`; or what keeps it out. Nobody of a user passes one that waits.
        One that is wider than the limit enters when nothing else counts."""
        if self.late is None and self.ends and self.gpus + gpus > self.limit:
            self.late = Late(self.gpus, self._opens_s(gpus))
        if self.late is None:
            self.ends.append((end_s, gpus))
        return self.late

    def _opens_s(self, gpus: int) -> float:
        left = self.gpus
        for end_s, ended in self.ends:
            left -= ended
            if left + gpus <= self.limit or not left:
                return end_s
        return NOT_YET_S


def late(view: View, rules: TrialRules) -> dict[JobId, Late]:
    """Pending jobs that have to wait until their users may send more, by job. Jobs that nobody has
    to profile count for nothing."""
    if rules.submit_gpus is None or not view.cluster.pending:
        return {}
    return _entered(view, rules, rules.submit_gpus)[1]


def refused(view: View, rules: TrialRules, job: Job, count: int = 1) -> Late | None:
    """The reason that keeps a user from sending so many jobs like this one now; None: nothing does.

    More than the limit at once may be sent when nothing else counts; the part beyond the limit then
    waits.
    """
    limit = rules.submit_gpus
    if limit is None or not _profiled(view, job):
        return None
    windows, _ = _entered(view, rules, limit)
    gpus = count * charged(job.request.gpus, node_gpus(view.cluster, home_type(view.cluster)))
    return windows[job.user].enter(gpus, view.now_s + rules.profile_s)


def _entered(
    view: View, rules: TrialRules, limit: int
) -> tuple[dict[str, _Window], dict[JobId, Late]]:
    """The windows of users with all jobs that they have sent, and the pending jobs without a place
    there.
    """
    cluster, now_s = view.cluster, view.now_s
    size = node_gpus(cluster, home_type(cluster))
    windows: dict[str, _Window] = defaultdict(lambda: _Window(limit))
    for at_s, user, gpus in cluster.profiling.sent(now_s - rules.profile_s):
        end_s = at_s + rules.profile_s
        if end_s > now_s:
            windows[user].ends.append((end_s, charged(gpus, size)))
    found: dict[JobId, Late] = {}
    for job_id in sorted(cluster.pending):
        job = cluster.jobs[job_id]
        if _profiled(view, job):
            gpus = charged(job.request.gpus, size)
            held = windows[job.user].enter(gpus, now_s + rules.profile_s)
            if held is not None:
                found[job_id] = held
    return windows, found


def _profiled(view: View, job: Job) -> bool:
    return not job.timed and not is_sure(view.cluster, job)


def opens_s(view: View, rules: TrialRules) -> float:
    """When the first of those may enter that may not yet; inf: there is none."""
    return min([held.opens_s for held in late(view, rules).values()], default=NOT_YET_S)
