"""How many jobs stand how. It is counted at each change of a job, so that readers count nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

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
        self._states[job.queue, job.state.value] += count
        if job.steps:
            self._verdicts[verdict_of(job)] += count


def verdict_of(job: Job) -> str:
    """In one word."""
    if job.promised is not None:
        return "promised"
    return "refused" if job.verdict else "not_judged"
