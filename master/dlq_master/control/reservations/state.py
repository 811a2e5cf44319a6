"""What the loop keeps of reservations. The reservations are stored."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlq_master.control.reservations.conflict_watch import Bookings
from dlq_master.store.batch import Loaded
from dlq_master.store.stored_tables import RESERVATIONS
from dlq_master.store.tables.table import Rows
from dlq_master.store.tables.tenants import Reservation


@dataclass(slots=True)
class ReservationsState:
    """`conflict_watch`: when to look for jobs that would run into a reservation."""

    by_id: Rows[str, Reservation] = field(default_factory=lambda: Rows(RESERVATIONS))
    conflict_watch: Bookings = field(default_factory=Bookings)

    def restore(self, loaded: Loaded) -> None:
        """Take over what is stored."""
        self.by_id = Rows(RESERVATIONS, loaded.reservations)
        self.conflict_watch.changed = bool(loaded.reservations)
