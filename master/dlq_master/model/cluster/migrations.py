"""Jobs that migrate from own nodes to rented machines."""

from __future__ import annotations

from collections.abc import Mapping

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.plan import Migrate


class Migrations:
    """Jobs that have been stopped to go on on a machine. Never stored: a forgotten job queues as
    any other.
    """

    def __init__(self) -> None:
        self._to: dict[JobId, Migrate] = {}

    def add(self, migrate: Migrate) -> None:
        """The job has been stopped for this."""
        self._to[migrate.key.job_id] = migrate

    def to(self, machine: str) -> list[Migrate]:
        """The jobs that are to come to a machine."""
        return [one for one in self._to.values() if one.machine == machine]

    def arrived(
        self, jobs: Mapping[JobId, Job], attempts: Mapping[AttemptKey, Attempt]
    ) -> list[Migrate]:
        """Take out the jobs that have left their GPUs: they start on their machines now."""
        for job_id in list(self._to):
            job = jobs.get(job_id)
            key = None if job is None else job.live_key
            attempt = None if key is None else attempts.get(key)
            if job is None or not (job.waiting or (attempt is not None and attempt.stop_cause)):
                del self._to[job_id]  # it has ended, is held, or runs on after all
        ready = [job_id for job_id in sorted(self._to) if jobs[job_id].waiting]
        return [self._to.pop(job_id) for job_id in ready]
