"""What a call asks of the audit: a line that is stored in the transaction of the change itself.

The change and its line are on disk together or not at all. The audit's file follows; a line that it
does not have yet is owed, and is written by the next start if this process does not get to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)
class AuditNote:
    """The line of one call. `committed`: a change of this call is on disk, and its line with it."""

    note_id: str
    text: str  # JSON
    committed: bool = False


# Of the call that is being served in this task; whoever asks the loop asks on its behalf.
CURRENT: ContextVar[AuditNote | None] = ContextVar("audit_note", default=None)


def owed(notes: Iterable[AuditNote | None], outcomes: Iterable[object]) -> list[AuditNote]:
    """The lines of those calls that were not refused, each once."""
    found = {
        note.note_id: note
        for note, outcome in zip(notes, outcomes, strict=True)
        if note is not None and not isinstance(outcome, BaseException)
    }
    return list(found.values())
