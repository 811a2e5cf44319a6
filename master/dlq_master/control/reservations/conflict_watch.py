"""When somebody has to look whether jobs would run into reservations. Nothing of it is stored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dlq_master.model.cluster.drive import Happened
from dlq_master.model.ids import JobId
from dlq_master.model.timers import Timers


@dataclass(slots=True)
class Bookings:
    """`changed`: reservations have come or gone; `moved`: jobs that something has happened to;
    `due`: jobs that would come to run into one from then on; `last`: the number of the newest
    reservation."""

    changed: bool = False
    due: Timers = field(default_factory=Timers)
    moved_jobs: dict[JobId, None] = field(default_factory=dict)
    last: int = 0

    def moved(self, happened: Iterable[Happened]) -> None:
        """Something has happened to these."""
        for one in happened:
            if one.job_id is not None:
                self.moved_jobs[one.job_id] = None
