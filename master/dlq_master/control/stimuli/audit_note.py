"""The request of a call to the audit: a line that is stored in the transaction of the change
itself.

The change and its line are on disk together or not at all. The audit's file follows. The database
marks a line as owed until the file has it. The next start writes it if this process does not.
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


# Of the call that is being served in this task; requests to the loop are on its behalf.
CURRENT: ContextVar[AuditNote | None] = ContextVar("audit_note", default=None)


def owed(notes: Iterable[AuditNote | None], outcomes: Iterable[object]) -> list[AuditNote]:
    """The lines of those calls that were not refused, each once."""
    found = {
        note.note_id: note
        for note, outcome in zip(notes, outcomes, strict=True)
        if note is not None and not isinstance(outcome, BaseException)
    }
    return list(found.values())
