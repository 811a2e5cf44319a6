"""The steps of an attempt, as its node told them last: kept beside the state, and never planned by.

All of it is the job's own word. Instants are kept as ages, so that one number places them all.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from dlq_master.model.ids import AttemptKey


class StepState(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"  # its attempt ended before it did


class StepFacts(NamedTuple):
    """One step."""

    number: int
    name: str
    node_count: int
    task_count: int
    age_s: float  # how long ago it began, when it was told
    run_s: float | None = None  # None: it runs
    exit_code: int = 0  # 128 + n after signal n
    peak_memory_bytes: int = 0
    cpu_s: float = 0.0
    node_ids: tuple[str, ...] = ()

    def state(self, *, living: bool) -> StepState:
        """Its state, when its attempt is living or not."""
        if self.run_s is None:
            return StepState.RUNNING if living else StepState.CANCELLED
        return StepState.FAILED if self.exit_code else StepState.COMPLETED


class TakenSteps(NamedTuple):
    """The newest steps of an attempt by number, and how many others there were."""

    key: AttemptKey
    told_s: float
    steps: tuple[StepFacts, ...]
    dropped: int = 0
    dropped_failed: int = 0
