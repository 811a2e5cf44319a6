"""The loop's state of the journal. All numbers are stored."""

from __future__ import annotations

from dataclasses import dataclass

from dlq_master.store.batch import HOOKS_SEEN, HORIZON, Loaded


@dataclass(slots=True)
class JournalState:
    """`horizon`: up to this sequence the journal may have been cut. `hooks_seen`: up to this one
    the hooks of attempts were told, and the results took effect; -1: there are no such hooks.
    """

    next_sequence: int = 1
    horizon: int = 0
    hooks_seen: int = -1

    def restore(self, loaded: Loaded) -> None:
        """Go on after everything that is, or was, in the journal."""
        self.horizon = int(loaded.meta.get(HORIZON, "0"))
        self.hooks_seen = int(loaded.meta.get(HOOKS_SEEN, "-1"))
        self.next_sequence = max(loaded.last_event, self.horizon) + 1
