"""The jobs in memory, and how many stand how. It is counted at each change of a job, so that
readers count nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from dlq_master.control.people.counts import JobCounts
from dlq_master.control.people.queue_tally import QueueTally
from dlq_master.control.people.team_use import AccountTally
from dlq_master.control.read_model.job_blocks import JobBlocks
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job

State = tuple[str, str]  # queue, state


class JobTally:
    """Jobs that have not ended, by their stored states, and those with deadlines."""

    def __init__(self) -> None:
        """Of no jobs."""
        self._states: Counter[State] = Counter()
        self._verdicts: Counter[str] = Counter()

    @property
    def states(self) -> Mapping[State, int]:
        """By queue and state."""
        return self._states

    @property
    def verdicts(self) -> Mapping[str, int]:
        """With deadlines, by the answer to them."""
        return self._verdicts

    def change(self, before: Job | None, job: Job) -> None:
        """This one is new, or no longer what it was."""
        self._add(before, -1)
        self._add(job, 1)

    def _add(self, job: Job | None, count: int) -> None:
        if job is None or job.ended:
            return
        self._states[job.queue, str(job.state)] += count
        if job.steps:
            self._verdicts[verdict_of(job)] += count


def verdict_of(job: Job) -> str:
    """In one word."""
    if job.promised is not None:
        return "promised"
    return "refused" if job.verdict else "not_judged"


class CountedJobs:
    """The jobs in memory by id, with all that is counted of each change."""

    def __init__(self, jobs: Mapping[JobId, Job], counts: JobCounts) -> None:
        """`counts`: of no jobs, for the limits of submissions."""
        self.jobs: dict[JobId, Job] = dict(sorted(jobs.items()))
        self.blocks = JobBlocks(self.jobs)
        self.counts = counts
        self.tally = JobTally()
        self.by_queue = QueueTally()
        self.by_account = AccountTally()
        for job in self.jobs.values():
            self._count(None, job)

    def put(self, job: Job) -> None:
        """This one is new, or no longer what it was."""
        before = self.jobs.get(job.job_id)
        self._count(before, job)
        self.jobs[job.job_id] = job
        self.blocks.changed(before, job)

    def forget(self, job_id: JobId) -> None:
        """An ended job has left memory. It counted for nothing any more."""
        self.blocks.gone(self.jobs.pop(job_id))

    def _count(self, before: Job | None, job: Job) -> None:
        self.counts.change(before, job)
        self.tally.change(before, job)
        self.by_queue.change(before, job)
        self.by_account.change(before, job)
