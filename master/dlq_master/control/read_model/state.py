"""The loop's state of the journal. Both numbers are stored."""

from __future__ import annotations

from dataclasses import dataclass

from dlq_master.store.batch import HORIZON, Loaded


@dataclass(slots=True)
class JournalState:
    """`horizon`: up to this sequence the journal may have been cut."""

    next_sequence: int = 1
    horizon: int = 0

    def restore(self, loaded: Loaded) -> None:
        """Go on after everything that is, or was, in the journal."""
        self.horizon = int(loaded.meta.get(HORIZON, "0"))
        self.next_sequence = max(loaded.last_event, self.horizon) + 1
