"""Where an event puts a job in its level: the only place that hands out positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.job_steps import (
    Demoted,
    JobEvent,
    Placed,
    Poisoned,
    Promoted,
    Released,
    Requeued,
)
from dlq_master.model.order.keys import STARTED_BASE, STARTED_END
from dlq_master.model.order.order import Discipline, Positions

# Takes the job before the event, and the event.
_Rule = Callable[[Job, Any], int | None]


class Moves:
    """The discipline's answer to every event; under ARRIVAL nothing moves."""

    __slots__ = ("_requeues", "_rules", "positions", "unsettled")

    def __init__(self, discipline: Discipline) -> None:
        self.unsettled: dict[JobId, None] = {}  # demoted while running, and since then neither
        # told to leave nor re-placed
        self.positions = Positions()
        self._requeues = discipline is Discipline.REQUEUE
        self._rules: Mapping[type[JobEvent], _Rule] = {
            Placed: self._placed,
            Requeued: self._vacated,
            Poisoned: self._vacated,
            Demoted: self._demoted,
            Promoted: self._promoted,
            Released: self._released,
        }
        if discipline is Discipline.ARRIVAL:
            self._rules = {}

    def after(self, job: Job, event: JobEvent) -> int | None:
        """The position that `event`, which the job's table allows, gives it; None: it stays."""
        rule = self._rules.get(type(event))
        return None if rule is None else rule(job, event)

    def leave(self, job: Job) -> int | None:
        """A job that is to stop running: it waits before those that waited all along."""
        self.unsettled.pop(job.job_id, None)
        return self.positions.head() if self._requeues and _started(job) else None

    def _placed(self, job: Job, _event: Placed) -> int | None:
        # A promoted job keeps the head also while it runs, lest the next one takes it down.
        if job.sequence < STARTED_BASE or (not self._requeues and _started(job)):
            return None
        return self.positions.started()

    def _vacated(self, job: Job, _event: Requeued | Poisoned) -> int | None:
        return self.leave(job)

    def _demoted(self, job: Job, event: Demoted) -> int | None:
        if event.level <= job.level:
            return None
        if not self._requeues:
            return self.positions.started() if job.sequence < STARTED_BASE else None
        if job.live_attempt is not None:
            self.unsettled[job.job_id] = None
        return self.positions.tail()

    def _promoted(self, job: Job, event: Promoted) -> int | None:
        if not event.keeps:
            return self.positions.tail()
        return None if job.promoted else self.positions.promoted()

    def _released(self, job: Job, _event: Released) -> int | None:
        keeps = not self._requeues and _started(job)
        waits = job.live_attempt is None and job.blocked is None
        return self.positions.tail() if waits and not keeps else None


def _started(job: Job) -> bool:
    return STARTED_BASE <= job.sequence < STARTED_END
