"""The decision of a walk over the jobs, before it becomes verbs."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.nodes.free_gpus import Parts

# Among the heads: the first of those that wait for their trial.
PROFILER = "\0profiler"


class TrialRoom(NamedTuple):
    """GPUs for trials, and how many of them trials hold."""

    gpus: int
    held: int

    def allows(self, gpus: int) -> bool:
        """Whether a trial of so many may begin. One that is wider than all of it begins when no
        other runs: it would wait for ever."""
        return not self.held or self.held + gpus <= self.gpus

    def after(self, gpus: int) -> TrialRoom:
        """The same with one more trial."""
        return self._replace(held=self.held + gpus)

    @property
    def unused(self) -> int:
        return max(0, self.gpus - self.held)


class Outcome:
    """Written by the walk, in its order."""

    __slots__ = (
        "chosen",
        "claims",
        "exchanged",
        "floor",
        "heads",
        "moving",
        "outranked",
        "resized",
        "room",
        "told",
        "withheld",
    )

    def __init__(self) -> None:
        # Waiting jobs that start now, and on which GPUs.
        self.chosen: dict[JobId, Parts] = {}
        # How their GPUs were found, where there is something to tell.
        self.told: dict[JobId, str] = {}
        # Work that has to leave, and one of the jobs that it leaves for.
        self.outranked: dict[AttemptKey, JobId] = {}
        # Of these: jobs that go on elsewhere in the slot that begins.
        self.moving: set[AttemptKey] = set()
        # Work that goes on with other GPUs: all that it then has.
        self.resized: dict[AttemptKey, Parts] = {}
        # Jobs that cannot start yet, but for which GPUs are kept from lower priorities. True: as
        # the reservation of a promoted job; False: it fits once they are released.
        self.claims: dict[JobId, bool] = {}
        # The job that nobody of its part of the cluster may pass; "": of all that have no quota.
        self.heads: dict[str, JobId] = {}
        # The capacity left for trials; None: nobody is profiled.
        self.room: TrialRoom | None = None
        # Free GPUs that are kept for trials.
        self.withheld = 0
        # Free GPUs that are kept for the jobs of a queue, and its name.
        self.floor: tuple[int, str] | None = None
        # Starting jobs have been placed anew as a whole: there may be room now for a job that had
        # none.
        self.exchanged = False


class Walk(Protocol):
    """One walk over the order, ready to be made."""

    def walked(self) -> Outcome:
        """The jobs that start and stop, and the jobs for which GPUs are kept."""
