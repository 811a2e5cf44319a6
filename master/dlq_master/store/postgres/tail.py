"""A standby's copy of the rows that a starting master reads, updated turn by turn.

It reads the keys of the turns since its last look, and fetches their rows, all in one snapshot. So
a takeover reads the last turns and not 100,000 jobs. It only reads. Any number of standbys may
follow, and the leader waits for none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Protocol

from dlq_master.model.attempts.attempt import Attempt
from dlq_master.model.estimates.lessons import Lesson
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.recording import Recording
from dlq_master.model.nodes.node import Node
from dlq_master.store.batch import (
    BATCH,
    MOST_RECORDINGS,
    TAUGHT,
    Intention,
    Loaded,
    MemoryWindow,
    User,
)
from dlq_master.store.postgres.fence import Fence, identity
from dlq_master.store.postgres.halves import with_epoch
from dlq_master.store.postgres.line import LONG_READER, PostgresPlace, ReadingLine
from dlq_master.store.postgres.turns import TurnChanges
from dlq_master.store.reader import StoreReader, intention_of
from dlq_master.store.tables.codec import decode
from dlq_master.store.tables.revocations import Revocation
from dlq_master.store.tables.tenants import Foreseen, Waited


class _Kept(NamedTuple):
    """A table whose rows are fetched by key: its key's columns, and the value of a body."""

    columns: tuple[str, ...]
    kind: type[Any]
    key_of: Callable[[Any], Any]


_BY_KEY: Final[Mapping[str, _Kept]] = {
    "jobs": _Kept(("job_id",), Job, lambda one: one.job_id),
    "attempts": _Kept(("job_id", "number"), Attempt, lambda one: one.key),
    "nodes": _Kept(("node_id",), Node, lambda one: one.node_id),
    "recordings": _Kept(("job_id", "number"), Recording, lambda one: one.key),
    "lessons": _Kept(("name",), Lesson, lambda one: one.name),
    "waited": _Kept(("job_id",), Waited, lambda one: one.job_id),
    "foreseen": _Kept(("job_id",), Foreseen, lambda one: one.job_id),
}
# Small tables, which are read whole when a row of them changes.
_TRIM_AFTER: Final = 1000  # turns
_WHOLE: Final = (
    *("users", "tokens", "teams", "reservations", "notify_rules", "machines", "revocations"),
    *("grants", "held_grants"),
)


@dataclass(slots=True)
class _Copy:
    """The rows as of one turn."""

    loaded: Loaded
    number: int  # of the last turn
    place: tuple[int, int]  # the server's data and their timeline
    rows: dict[str, dict[Any, Any]] = field(default_factory=dict)
    outbox: dict[int, Intention] = field(default_factory=dict)
    trimmed: int = 0  # the turn at which rows were let go last

    def __post_init__(self) -> None:
        for name, kept in _BY_KEY.items():
            self.rows[name] = {kept.key_of(one): one for one in getattr(self.loaded, name)}
        self.outbox = {one.sequence: one for one in self.loaded.intentions}


class FollowedRows(Protocol):
    """The rows of a leader, as a tail reads them. Each call may raise Unavailable."""

    def snapshot(self) -> AbstractContextManager[None]:
        """All reads in it are of one moment."""

    def here(self) -> tuple[tuple[int, int], int]:
        """The identity of the server's data, their timeline, and the last turn."""

    def turns(self, after: int) -> list[str]:
        """The changes of the stored turns behind this one."""

    def load(self, window: MemoryWindow) -> Loaded:
        """All rows that a start reads."""

    def by_key(self, name: str, keys: set[Any]) -> Iterable[Any]:
        """The existing rows with these keys."""

    def commands(self, sequences: set[int]) -> Iterable[Intention]:
        """The existing rows of the outbox with these keys."""

    def small_table(self, name: str) -> tuple[Any, ...]:
        """All rows of a small table."""

    def meta(self) -> Mapping[str, str]:
        """The rows of meta that a start reads."""

    def audit_owed(self) -> tuple[tuple[str, str], ...]:
        """The audit's lines that its file may lack, in order."""

    def rename(self, name: str) -> None:
        """Rename the session."""

    def abandon(self) -> None:
        """From any thread: make the running call fail."""

    def close(self) -> None:
        """Close the connection."""


class PostgresRows:
    """The rows of a server."""

    def __init__(self, place: PostgresPlace) -> None:
        """Unavailable: the server cannot be reached."""
        self._line = ReadingLine(place, LONG_READER)
        self._reader = StoreReader(self._line, self._line)
        self.snapshot, self.rename = self._line.snapshot, self._line.rename
        self.abandon, self.close = self._line.abandon, self._reader.close
        self.load, self.small_table = self._reader.load, self._reader.small_table

    def here(self) -> tuple[tuple[int, int], int]:
        row = self._line.execute("SELECT value FROM meta WHERE key = ?", [BATCH]).fetchone()
        return identity(self._line), 0 if row is None else int(row[0])

    def turns(self, after: int) -> list[str]:
        rows = self._line.execute(
            "SELECT changed FROM turns WHERE number > ? ORDER BY number", [after]
        )
        return [text for (text,) in rows]

    def by_key(self, name: str, keys: set[Any]) -> Iterable[Any]:
        kept = _BY_KEY[name]
        rows = self._line.execute(_by_keys(name, kept.columns), _columns(keys, kept))
        return [decode(body, kept.kind) for (body,) in rows]

    def commands(self, sequences: set[int]) -> Iterable[Intention]:
        rows = self._line.execute(
            "SELECT sequence, node_id, kind, job_id, attempt, body FROM outbox"
            " WHERE sequence = ANY(?)",
            [sorted(sequences)],
        )
        return [intention_of(row) for row in rows]

    def meta(self) -> Mapping[str, str]:
        rows = self._line.execute("SELECT key, value FROM meta WHERE key != ?", [BATCH])
        return dict(rows.fetchall())

    def audit_owed(self) -> tuple[tuple[str, str], ...]:
        owed = self._line.execute("SELECT note_id, line FROM audit_owed ORDER BY sequence")
        return tuple(owed.fetchall())


class StoreTail:
    """Follows a leader. `catch_up` is called again and again, `loaded` once this master leads."""

    def __init__(self, rows: FollowedRows, window: MemoryWindow) -> None:
        self._rows = rows
        self._window = window
        self._copy: _Copy | None = None
        self.reloads = 0  # how often everything was read

    @property
    def number(self) -> int:
        """The last turn in the copy; 0: nothing was read yet."""
        return 0 if self._copy is None else self._copy.number

    @property
    def system(self) -> str:
        """The identity of the database that was read."""
        return "" if self._copy is None else str(self._copy.place[0])

    def catch_up(self) -> int:
        """Read what has changed since the last call; return the number of turns.

        Unavailable: the copy is unchanged. All rows are read at first, if the turns in between are
        gone, and from a server that was promoted.
        """
        before = self.number
        with self._rows.snapshot():
            place, newest = self._rows.here()
            copy = self._copy
            told = self._rows.turns(before) if copy is not None and copy.place == place else None
            if told is None or len(told) != newest - before:
                self._copy = self._read_all(place, newest)
            elif told:
                assert copy is not None
                self._copy = self._changed(copy, told, newest)
        return newest - before

    def loaded(self, fence: Fence | None = None) -> Loaded:
        """The value with which a master starts, as of the last `catch_up`. `fence`: of its new
        lead.
        """
        if self._copy is None:
            self.catch_up()
        assert self._copy is not None
        loaded = self._copy.loaded = self._assembled(self._copy)
        return loaded if fence is None else with_epoch(loaded, fence)

    @property
    def people(self) -> tuple[Mapping[str, User], Mapping[str, Revocation]]:
        """The users and the revocations by key, as of the last `catch_up`."""
        if self._copy is None:
            return {}, {}
        loaded = self._copy.loaded
        return (
            {one.name: one for one in loaded.users},
            {one.subject: one for one in loaded.revocations},
        )

    @property
    def meta(self) -> Mapping[str, str]:
        """A value of `meta`, as of the last `catch_up`."""
        return {} if self._copy is None else self._copy.loaded.meta

    def call_itself(self, name: str) -> None:
        """Set the name of its session on the server, by which a leader finds its standbys."""
        self._rows.rename(name)

    def abandon(self) -> None:
        """From any thread: make the running read fail with Unavailable."""
        self._rows.abandon()

    def close(self) -> None:
        """Close the connection."""
        self._rows.close()

    def _read_all(self, place: tuple[int, int], newest: int) -> _Copy:
        self.reloads += 1
        return _Copy(self._rows.load(self._window), newest, place)

    def _changed(self, copy: _Copy, told: Iterable[str], newest: int) -> _Copy:
        """The copy with the rows of these turns. All rows are read before one is changed."""
        changes = TurnChanges(told)
        fetched = {
            name: (keys, self._fetched(name, keys))
            for name, keys in changes.keys.items()
            if name in _BY_KEY
        }
        outbox = changes.keys.get("outbox", set())
        commands = {one.sequence: one for one in self._rows.commands(outbox)}
        names = changes.keys.keys() & set(_WHOLE)
        small: dict[str, Any] = {name: self._rows.small_table(name) for name in names}
        small |= {"meta": self._rows.meta(), "audit_owed": self._rows.audit_owed()}
        for name, (keys, found) in fetched.items():
            _replace(copy.rows[name], keys, found)
        _replace(copy.outbox, outbox, commands)
        last_event, last_time_s = changes.newest or (
            copy.loaded.last_event,
            copy.loaded.last_time_s,
        )
        copy.loaded = replace(copy.loaded, last_event=last_event, last_time_s=last_time_s, **small)
        copy.number = newest
        if newest - copy.trimmed > _TRIM_AFTER:
            copy.loaded = self._assembled(copy)
        return copy

    def _fetched(self, name: str, keys: set[Any]) -> dict[Any, Any]:
        key_of = _BY_KEY[name].key_of
        return {key_of(one): one for one in self._rows.by_key(name, keys)}

    def _assembled(self, copy: _Copy) -> Loaded:
        """The rows as `StoreReader.load` returns them, without rows that a start would not read."""
        rows, loaded = copy.rows, copy.loaded
        copy.trimmed = copy.number
        _forget(rows["attempts"], lambda one: one.ended_time_s is not None)
        holding = {key.job_id for key in rows["attempts"]}
        from_s = loaded.last_time_s - self._window.kept_s
        ended = sorted(
            (job for job in rows["jobs"].values() if job.end_time_s is not None),
            key=lambda job: (-(job.end_time_s or 0.0), -job.job_id),
        )
        recent = [job for job in ended if (job.end_time_s or 0.0) >= from_s][: self._window.most]
        complete_from_s = from_s
        if len(recent) >= self._window.most:
            complete_from_s = (recent[-1].end_time_s or 0.0) if recent else math.inf
        kept = {job.job_id for job in recent} | holding
        last_job = max(loaded.last_job, max(rows["jobs"], default=0))
        _forget(rows["jobs"], lambda job: job.end_time_s is not None and job.job_id not in kept)
        living = {job.job_id for job in rows["jobs"].values() if job.end_time_s is None}
        _forget(rows["waited"], lambda one: one.job_id not in living)
        newest = sorted(rows["recordings"].values(), key=lambda one: (one.order_time_s, one.key))
        for one in newest[:-MOST_RECORDINGS]:
            del rows["recordings"][one.key]
        return replace(
            loaded,
            jobs=_in_order(rows["jobs"]),
            attempts=_in_order(rows["attempts"]),
            nodes=_in_order(rows["nodes"]),
            intentions=_in_order(copy.outbox),
            last_job=last_job,
            complete_from_s=max(complete_from_s, loaded.complete_from_s),
            completed=() if TAUGHT in loaded.meta else loaded.completed,
            lessons=_in_order(rows["lessons"]),
            recordings=tuple(newest[-MOST_RECORDINGS:]),
            waited=_in_order(rows["waited"]),
            foreseen=_in_order(rows["foreseen"]),
        )


def _by_keys(name: str, columns: tuple[str, ...]) -> str:
    if len(columns) == 1:
        return f"SELECT body FROM {name} WHERE {columns[0]} = ANY(?)"
    marks = ", ".join("CAST(? AS bigint[])" for _ in columns)
    return (
        f"SELECT body FROM {name} WHERE ({', '.join(columns)}) IN (SELECT * FROM unnest({marks}))"
    )


def _columns(keys: set[Any], kept: _Kept) -> list[list[Any]]:
    if len(kept.columns) == 1:
        return [sorted(keys)]
    return [list(column) for column in zip(*sorted(keys), strict=True)]


def _replace(rows: dict[Any, Any], keys: Iterable[Any], found: Mapping[Any, Any]) -> None:
    """Replace rows; rows that were not found are removed."""
    for key in keys:
        if key not in found:
            rows.pop(key, None)
    rows.update(found)


def _forget(rows: dict[Any, Any], gone: Callable[[Any], bool]) -> None:
    for key in [key for key, one in rows.items() if gone(one)]:
        del rows[key]


def _in_order(rows: Mapping[Any, Any]) -> tuple[Any, ...]:
    return tuple(rows[key] for key in sorted(rows))
