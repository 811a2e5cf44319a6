"""The keys of the rows that each turn has changed.

A turn writes one row of `turns`. A standby fetches the rows of many turns at once, so that a row
that changes often costs little.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

from dlq_master.store.batch import Batch

# Lists of a batch whose rows a start reads: the table, and the key of a value. Requests, specs,
# evidence and accounts are read one by one when they are needed.
_LISTS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "jobs": ("jobs", attrgetter("job_id")),
    "attempts": ("attempts", attrgetter("key")),
    "nodes": ("nodes", attrgetter("node_id")),
    "forgotten_nodes": ("nodes", str),
    "intentions": ("outbox", attrgetter("sequence")),
    "delivered": ("outbox", int),
    "recordings": ("recordings", attrgetter("key")),
}
_NEWEST: Final = "newest"  # the newest event: its number and its time


def changes_of(batch: Batch) -> dict[str, list[Any]]:
    """The keys of the rows that this batch changes, by table."""
    told: dict[str, list[Any]] = {}
    for name, (table_name, key_of) in _LISTS.items():
        if values := getattr(batch, name):
            told.setdefault(table_name, []).extend(map(key_of, values))
    for table, changes in batch.changes.items():
        told[table.name] = [*changes]
    if batch.events:
        newest = batch.events[-1]
        told[_NEWEST] = [newest.seq, newest.time_s]
    return told


class TurnChanges:
    """The changes of several turns together."""

    def __init__(self, told: Iterable[str]) -> None:
        self.keys: dict[str, set[Any]] = {}
        self.newest: tuple[int, float] | None = None
        for text in told:
            for word, keys in json.loads(text).items():
                if word == _NEWEST:
                    self.newest = (keys[0], keys[1])
                else:
                    found = (tuple(key) if isinstance(key, list) else key for key in keys)
                    self.keys.setdefault(word, set()).update(found)
