"""The journal's line: the event, its subject, its cause and its actor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dlq_master.model.ids import JobId, NodeId

Fact = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEvent:
    """One committed fact. `seq` is 0 until the store numbers it."""

    kind: str  # one past-tense snake_case word, as in attempt_started
    time_s: float
    seq: int = 0
    job_id: JobId | None = None
    attempt: int | None = None
    node_id: NodeId | None = None
    cause: str = ""
    actor: str = "scheduler"
    data: Mapping[str, Fact] = field(default_factory=dict)
