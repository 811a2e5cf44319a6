"""Jobs that hold GPUs, counted at each change of a job or an attempt: readers count nothing.

`JobTally` counts jobs by their stored states. A job with a living attempt shows another state, and
this tally has the difference. It also has the GPUs that teams hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from dlq_master.control.read_model.tally import State
from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.band import Band
from dlq_master.model.jobs.job import Job


class _Part(NamedTuple):
    """The part of one job in the sums."""

    queue: str
    stored: str
    shown: str
    team: str
    gpus: int
    borrowed: int


class LivingTally:
    """Sums over jobs with a living attempt."""

    def __init__(self) -> None:
        """Of no jobs."""
        self.states: Counter[State] = Counter()
        """By queue and state: to be added to the jobs by their stored states."""
        self.used_gpus: Counter[str] = Counter()
        """By team; users without a team are left out."""
        self.borrowed_gpus: Counter[str] = Counter()
        self._parts: dict[JobId, _Part] = {}

    @property
    def known(self) -> Collection[JobId]:
        """The jobs that count here."""
        return self._parts.keys()

    def look(self, job_id: JobId, job: Job | None, attempt: Attempt | None) -> None:
        """The present values of a job and its living attempt; None: there is none."""
        before = self._parts.get(job_id)
        after = None if job is None or attempt is None else _part(job, attempt)
        if before == after:
            return
        if before is not None:
            self._add(before, -1)
            del self._parts[job_id]
        if after is not None:
            self._add(after, 1)
            self._parts[job_id] = after

    def _add(self, part: _Part, sign: int) -> None:
        self.states[part.queue, part.stored] -= sign
        self.states[part.queue, part.shown] += sign
        if part.team:
            self.used_gpus[part.team] += sign * part.gpus
            self.borrowed_gpus[part.team] += sign * part.borrowed


def _part(job: Job, attempt: Attempt) -> _Part | None:
    """None: the job has ended, and the attempt is not its own any more."""
    if job.ended or job.live_key != attempt.key:
        return None
    gpus = 0 if job.request.without_gpus else attempt.lease.allocation.width
    return _Part(
        queue=job.queue,
        stored=job.state.value,
        shown=attempt.shown_state,
        team=job.team,
        gpus=gpus,
        borrowed=gpus if job.band is Band.BORROW else 0,
    )
