"""First come, first served: one level, positions never change."""

from __future__ import annotations

from dlq_master.model.order.order import Discipline, Ordering

ARRIVAL = Ordering(discipline=Discipline.ARRIVAL)
