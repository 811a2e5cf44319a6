"""The loop's state of reservations. The reservations are stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dlq_master.model.cluster.drive import Happened
from dlq_master.model.ids import JobId
from dlq_master.model.timers import Timers
from dlq_master.store.batch import Loaded
from dlq_master.store.stored_tables import RESERVATIONS
from dlq_master.store.tables.table import Rows
from dlq_master.store.tables.tenants import Reservation


@dataclass(slots=True)
class ConflictWatch:
    """When to look for jobs that would run into a reservation.

    `changed`: a reservation was made or cancelled. `moved_jobs`: jobs that changed since the last
    look. `due`: when a job would begin to run into one. `last`: the newest reservation's number.
    """

    changed: bool = False
    due: Timers[JobId] = field(default_factory=Timers)
    moved_jobs: dict[JobId, None] = field(default_factory=dict)
    last: int = 0

    def moved(self, happened: Iterable[Happened]) -> None:
        """Note the jobs that changed."""
        for one in happened:
            if one.job_id is not None:
                self.moved_jobs[one.job_id] = None


@dataclass(slots=True)
class ReservationsState:
    """The reservations by id, and when to look for jobs that would run into one."""

    by_id: Rows[str, Reservation] = field(default_factory=lambda: Rows(RESERVATIONS))
    conflict_watch: ConflictWatch = field(default_factory=ConflictWatch)

    def restore(self, loaded: Loaded) -> None:
        """Take over what is stored."""
        self.by_id = Rows(RESERVATIONS, loaded.reservations)
        self.conflict_watch.changed = bool(loaded.reservations)
