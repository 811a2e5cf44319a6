"""Jobs with deadlines, by user, and the last promises that are over.

It is kept at each change of a job, so that a reader looks at no other job. Nothing of it is stored:
a master that starts again begins with the jobs that it has loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum

from dlq_master.control.read_model.job_blocks import EVERYBODY
from dlq_master.model.attempts.deadlines import due_s
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job, JobState

MOST_ENDED = 2_000  # promises that are over and are kept
GIVEN_UP = frozenset({"broken", "overrun"})  # grounds of a verdict on a job that was promised


class PromiseOutcome(StrEnum):
    """How a promise ended."""

    KEPT = "kept"
    MISSED = "missed"
    BROKEN = "broken"


class PromiseIndex:
    """Touched in the loop's thread only."""

    def __init__(self) -> None:
        """Of no jobs."""
        self._living: dict[str, dict[JobId, bool]] = {}  # by user: whether each is promised one
        self._ended: dict[JobId, Job] = {}  # the first to end first
        self.dropped_s = 0.0  # the last end of those that are kept no more

    def change(self, job: Job) -> None:
        """This one is new, or no longer what it was."""
        if job.steps and not job.ended:
            for user in (EVERYBODY, job.user):
                self._living.setdefault(user, {})[job.job_id] = job.promised is not None
            return
        if job.job_id in self._living.get(EVERYBODY, ()):
            self._drop(job)
        if job.steps and job.job_id not in self._ended and outcome_of(job) is not None:
            self._keep(job)

    def living(self, user: str, after: int) -> Sequence[JobId]:
        """Jobs of this user, or of EVERYBODY, that have not ended, with ids above `after`."""
        return sorted(job_id for job_id in self._living.get(user, ()) if job_id > after)

    def promised_count(self, user: str) -> int:
        """Those of them that are promised a deadline."""
        return sum(self._living.get(user, {}).values())

    def ended(self) -> Iterator[tuple[Job, PromiseOutcome]]:
        """Jobs whose promise is over, the last to end first."""
        for job in reversed(self._ended.values()):
            outcome = outcome_of(job)
            if outcome is not None:
                yield job, outcome

    def _keep(self, job: Job) -> None:
        self._ended[job.job_id] = job
        if len(self._ended) > MOST_ENDED:
            first = next(iter(self._ended))
            self.dropped_s = max(self.dropped_s, self._ended.pop(first).end_time_s or 0.0)

    def _drop(self, job: Job) -> None:
        for user in (EVERYBODY, job.user):
            self._living[user].pop(job.job_id, None)
            if not self._living[user]:
                del self._living[user]


def outcome_of(job: Job) -> PromiseOutcome | None:
    """How its promise ended; None: it had none, or somebody ended it before its time."""
    if job.end_time_s is None:
        return None
    if job.promised is None:
        return PromiseOutcome.BROKEN if job.verdict in GIVEN_UP else None
    if job.end_time_s > due_s(job, job.promised):
        return PromiseOutcome.MISSED
    return PromiseOutcome.KEPT if job.state is JobState.COMPLETED else None
