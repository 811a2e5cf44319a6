"""Whether a promised job can still be in time, if it gets all the slots that are planned for it.

Plans are made on the safe side. Every segment pays for a save and a resume, and the work of a
best-effort run counts once it is saved. A warning of risk is certain: with all its slots, and its
present lease, the work that is reserved for it would not be done.
"""

from __future__ import annotations

from typing import NamedTuple

from dlq_master.model.attempts.attempt import Attempt, AttemptState
from dlq_master.model.attempts.deadlines import due_s
from dlq_master.model.jobs.job import Job
from dlq_master.model.view import View
from dlq_master.policy.promise.capacity.grids import slot_s
from dlq_master.policy.promise.verdicts.reading import goes_on, pause_of, total_s, worked_s

NOISE_S = 1e-3


class Outlook(NamedTuple):
    """Seconds of work that are left of what is reserved, and that it has slots for until its
    deadline.
    """

    needs_s: float
    has_s: float

    @property
    def in_time(self) -> bool:
        return self.needs_s <= self.has_s + NOISE_S


def is_silent(attempt: Attempt | None) -> bool:
    """Whether nobody knows what it does: a node of it is not heard."""
    return attempt is not None and attempt.state is AttemptState.UNKNOWN


def outlook(view: View, job: Job, extra: float) -> Outlook:
    """Of a job that is promised a deadline."""
    cluster, at_s = view.cluster, view.now_s
    attempt = cluster.live_attempt(job)
    if is_silent(attempt):
        attempt = None  # only what it has saved is certain
    needs_s = total_s(job, extra) - worked_s(cluster, job, attempt, at_s)
    if attempt is not None and attempt.state is AttemptState.PAUSING:
        needs_s -= attempt.executed_s(at_s)  # it is saving that
    by_s, term_s = due_s(job, job.promised or 0), slot_s(cluster)
    runs, has_s = goes_on(attempt, at_s), 0.0
    if runs and attempt is not None:
        until_s = min(attempt.lease.term_end_s, by_s)
        has_s, at_s = until_s - at_s, until_s
    resume_s = pause_of(cluster, job).resume_s if runs or job.worked_s else 0.0
    for begin, end in job.slots:
        first_s, last_s = max(at_s, begin * term_s), min(end * term_s, by_s)
        if last_s > first_s:
            stays = runs and first_s == at_s
            has_s += max(0.0, last_s - first_s - (0.0 if stays else resume_s))
            at_s = last_s
    return Outlook(needs_s, has_s)
