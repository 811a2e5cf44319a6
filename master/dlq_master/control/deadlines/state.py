"""The loop's state of deadlines. Nothing is stored: it follows from jobs and nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dlq_master.control.deadlines.risks import Risks
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job


@dataclass(slots=True)
class DeadlinesState:
    """`cancel_late`: jobs that are cancelled once they would be late (`--on-miss cancel`)."""

    risks: Risks = field(default_factory=Risks)  # promises that may not be kept
    cancel_late: dict[JobId, None] = field(default_factory=dict)

    def restore(self, jobs: Iterable[Job]) -> None:
        """Work the slice out from the loaded jobs."""
        for job in jobs:
            if job.steps:
                self.note_cancel_late(job)

    def note_cancel_late(self, job: Job) -> None:
        """Remember a job that is to end once it would be late."""
        if job.rules.cancel_late and job.steps and not job.ended:
            self.cancel_late[job.job_id] = None
