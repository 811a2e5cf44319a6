"""The decision of a walk over the jobs, before it becomes the changes of a plan."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.nodes.free_gpus import Parts

# The key in `Outcome.heads` of the first job that waits for a trial.
PROFILER = "\0profiler"


class TrialRoom(NamedTuple):
    """GPUs for trials, and how many of them trials hold."""

    gpus: int
    held: int

    def allows(self, gpus: int) -> bool:
        """Whether a trial of so many GPUs may begin. A trial that is wider than all of the room
        begins when no other runs.
        """
        return not self.held or self.held + gpus <= self.gpus

    def after(self, gpus: int) -> TrialRoom:
        """The same with one more trial."""
        return self._replace(held=self.held + gpus)

    @property
    def unused(self) -> int:
        return max(0, self.gpus - self.held)


class Outcome:
    """The decision; the walk and its allocator write it."""

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
        # Waiting jobs that start now, with their GPUs.
        self.chosen: dict[JobId, Parts] = {}
        # Notes on the choice of their GPUs, for the reason of the start.
        self.told: dict[JobId, str] = {}
        # Preempted attempts, each with one job that gets its GPUs.
        self.outranked: dict[AttemptKey, JobId] = {}
        # Those of them that start elsewhere in the slot that begins.
        self.moving: set[AttemptKey] = set()
        # Resized attempts, with all GPUs that they then have.
        self.resized: dict[AttemptKey, Parts] = {}
        # Jobs that cannot start yet, but for which GPUs are kept from lower priorities. True: as
        # the reservation of a promoted job; False: it fits once they are released.
        self.claims: dict[JobId, bool] = {}
        # Part of the cluster ("": queues without a quota) -> the job that no other there may pass.
        self.heads: dict[str, JobId] = {}
        # The capacity for trials; None: there are no trials.
        self.room: TrialRoom | None = None
        # Free GPUs that are kept for trials.
        self.withheld = 0
        # Free GPUs that are kept for the jobs of a queue, and its name.
        self.floor: tuple[int, str] | None = None
        # True if starting jobs have exchanged GPUs: another job may fit now.
        self.exchanged = False


class Walk(Protocol):
    """One walk over the order, ready to be made."""

    def walked(self) -> Outcome:
        """The jobs that start and stop, and the jobs for which GPUs are kept."""
