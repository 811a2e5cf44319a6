"""The jobs of each queue, counted at each change of a job: a reader of queues looks at no job."""

from __future__ import annotations

from collections import Counter
from enum import Enum

from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.resources import CORE_TYPE


class QueuePart(Enum):
    """How a job takes part in its queue."""

    RUNNING = "running"
    WAITING = "waiting"
    HELD = "held"

    __hash__ = object.__hash__  # a key of each change of a job; that of enums is Python


class QueueTally:
    """The jobs of each queue, and their GPUs and cores: a reader of queues looks at no job."""

    def __init__(self) -> None:
        """Of no jobs."""
        self.jobs: Counter[tuple[str, QueuePart, int]] = Counter()
        """By queue, place and level."""
        self.gpus: Counter[tuple[str, QueuePart]] = Counter()
        self.cores: Counter[tuple[str, QueuePart]] = Counter()

    def change(self, before: Job | None, job: Job) -> None:
        """This one is new, or no longer what it was."""
        for one, sign in ((before, -1), (job, 1)):
            place = None if one is None else _place(one)
            if one is None or place is None:
                continue
            self.jobs[one.queue, place, one.level] += sign
            asked = one.request
            counts = self.cores if asked.gpu_type == CORE_TYPE else self.gpus
            counts[one.queue, place] += sign * asked.gpus

    def held(self, queue: str) -> int:
        """Jobs on hold, of all levels."""
        return sum(
            count
            for (name, place, _), count in self.jobs.items()
            if name == queue and place is QueuePart.HELD
        )


def _place(job: Job) -> QueuePart | None:
    """None: it has no part in its queue."""
    if job.live_attempt is not None:
        return QueuePart.RUNNING
    if job.state is JobState.QUEUED:
        return QueuePart.WAITING if job.blocked is None else None
    return QueuePart.HELD if job.state is JobState.HELD else None
