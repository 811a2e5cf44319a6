"""The rows of a leader as a standby of the world reads them: late, at one moment, or not at all.

The store's own history is kept for the last turns. A reading sees one turn of it, the newest when
it began. Without a snapshot each statement sees a later one, as the tape says: the product never
reads so, and a planted bug does.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from dlq_common.errors import Unavailable
from dlq_master.store.batch import Batch, Intention, Loaded, MemoryWindow
from dlq_master.store.postgres.tail import _BY_KEY
from dlq_master.store.postgres.turns import changes_of
from dlq_master.store.stored_tables import TABLES
from dlq_master.store.tables.codec import decode
from support.memory_store import MemoryStore
from world.stage.lease_row import SYSTEM, SeenHere, SharedRow
from world.stage.tape import Stream

KEPT = 60  # turns; a standby that was away for longer reads everything
READING_S = (0.01, 0.1, 0.9, 4.0)
FAILS = 30  # of a thousand statements
_TABLES = {table.name: table for table in TABLES}


class Turn(NamedTuple):
    """The rows after a turn, and what it has changed."""

    number: int
    rows: MemoryStore
    changed: str


class TurnHistory:
    """The last turns of a store that masters share."""

    def __init__(self, row: SharedRow, store: MemoryStore) -> None:
        self.row, self._store = row, store
        self.kept: deque[Turn] = deque([Turn(0, store.as_it_is(), "{}")], maxlen=KEPT)

    def written(self, batch: Batch) -> None:
        """Another turn is on disk."""
        self.row.turn += 1
        # Texts, as the product's turns have them.
        changed = json.dumps(changes_of(batch))
        self.kept.append(Turn(self.row.turn, self._store.as_it_is(), changed))

    def newest(self) -> Turn:
        """The last one that the present server has."""
        last = self.row.turn - self.row.behind
        return next((it for it in reversed(self.kept) if it.number <= last), self.kept[0])


class ModelRows:
    """`FollowedRows` of one standby's session."""

    def __init__(self, history: TurnHistory, draws: Stream, name: str) -> None:
        self._history, self._draws, self._name = history, draws, name
        self._view = history.newest()
        self._pinned = False
        self._place = self._here_now()

    def _here_now(self) -> tuple[int, int]:
        return int(SYSTEM), self._history.row.timeline

    def begin(self) -> None:
        """A reading begins: what it sees is of this moment, however long it takes."""
        self._view, self._place = self._history.newest(), self._here_now()

    def _asked(self) -> MemoryStore:
        """One statement. Raises Unavailable."""
        row = self._history.row
        gone = self._name in row.cut_off or self._place != self._here_now()
        if gone or self._draws.chance(FAILS):
            raise Unavailable("the server does not answer")
        if not self._pinned:
            later = [it for it in self._history.kept if it.number >= self._view.number]
            self._view = self._draws.pick(later or [self._view])
        return self._view.rows

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        self._pinned = True
        try:
            yield
        finally:
            self._pinned = False

    def here(self) -> tuple[tuple[int, int], int]:
        self._asked()
        return self._place, self._view.number

    def turns(self, after: int) -> list[str]:
        self._asked()
        return [it.changed for it in self._history.kept if after < it.number <= self._view.number]

    def load(self, window: MemoryWindow) -> Loaded:
        return self._asked().load(window)

    def by_key(self, name: str, keys: set[Any]) -> Iterable[Any]:
        bodies: Mapping[Any, str] = self._asked().bodies(name)
        kind = _BY_KEY[name].kind
        return [decode(bodies[key], kind) for key in sorted(keys) if key in bodies]

    def commands(self, sequences: set[int]) -> Iterable[Intention]:
        return [it for it in self._asked().load().intentions if it.sequence in sequences]

    def small_table(self, name: str) -> tuple[Any, ...]:
        return tuple(getattr(self._asked().load(), name))

    def meta(self) -> Mapping[str, str]:
        return self._asked().load().meta

    def audit_owed(self) -> tuple[tuple[str, str], ...]:
        return self._asked().load().audit_owed

    def rename(self, name: str) -> None:
        """Nobody looks for a session."""

    def abandon(self) -> None:
        """No reading is stuck here."""

    def close(self) -> None:
        """The session ends."""


class TurnsHere:
    """The last turn that the host of a master has seen: the product's file, as a model."""

    def __init__(self, seen: SeenHere) -> None:
        self._seen = seen

    def of(self, system: str) -> int:
        assert system in ("", SYSTEM)
        return self._seen.turn

    def note(self, number: int, system: str) -> None:
        assert system in ("", SYSTEM)
        self._seen.turn = max(self._seen.turn, number)


def alike(loaded: Loaded) -> Loaded:
    """Lessons come in no order, and a tail may know longer how far its ended jobs are whole."""
    lessons = tuple(sorted(loaded.lessons, key=lambda one: one.name))
    return replace(loaded, lessons=lessons, complete_from_s=0.0)
