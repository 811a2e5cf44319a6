"""The changes and warnings of hooks, as people read them."""

from __future__ import annotations

from dlq.v1.job_pb2 import HookNote


def hook_words(note: HookNote) -> str:
    """One change, or one warning."""
    if not note.field:
        return f"{note.hook}: {note.text}"
    return f"{note.hook} changed {note.field} from {note.before} to {note.after}"
