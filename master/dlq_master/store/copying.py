"""Moves a stopped cluster from SQLite to PostgreSQL, or back: every row, compared afterwards.

The old place is set aside, so that no master starts there by mistake. A failed move changes neither
place.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

from dlq_common.errors import DlqError
from dlq_master.model.jobs.job import Job
from dlq_master.store.postgres.dialect import PARTS, parts_of
from dlq_master.store.postgres.fence import claim_session, read_leader, take_lead
from dlq_master.store.postgres.line import WRITER, PostgresLine, PostgresPlace
from dlq_master.store.postgres.schema import COLUMNS, keys_of, make_tables
from dlq_master.store.sqlite.database import Database
from dlq_master.store.sqlite.open import claim, create_database, open_database, sync, write
from dlq_master.store.tables.codec import decode

MOVED: Final = ".moved"  # the end of the name of a file whose rows lie in PostgreSQL now
_AT_ONCE: Final = 1000
_SLOW: Final = {**WRITER, "idle_in_transaction_session_timeout": "0"}

Row = tuple[Any, ...]


class MoveFailed(DlqError):
    """The cluster is where it was."""

    reason = "MOVE_FAILED"


def to_postgres(path: Path, place: PostgresPlace) -> dict[str, int]:
    """Move the rows of a file into an empty database; return the number of rows by table.

    Raises MoveFailed, DatabaseInUse, DatabaseDamaged or Unavailable.
    """
    held = claim(path)
    try:
        with closing(open_database(path)) as db, closing(PostgresLine(place, _SLOW)) as line:
            claim_session(line)
            make_tables(line)
            line.own("BEGIN")
            counts = {name: _into_postgres(db, line, name) for name in COLUMNS}
            _compare(db, line)
            line.own(
                "SELECT setval(pg_get_serial_sequence('audit_owed', 'sequence'),"
                " (SELECT coalesce(max(sequence), 0) + 1 FROM audit_owed))"
            )
            line.own("COMMIT")
        path.replace(path.with_name(path.name + MOVED))
        sync(path.parent)
    finally:
        os.close(held)
    return counts


def to_sqlite(place: PostgresPlace, path: Path) -> dict[str, int]:
    """Move the rows of a database into a new file; return the number of rows by table.

    Raises as `to_postgres` does. A master that still leads there is fenced off first.
    """
    with closing(PostgresLine(place, _SLOW)) as line:
        claim_session(line)
        take_lead(line, "copy-store", "", 0.0, read_leader(line).epoch)
        unfinished = path.with_name(f"{path.name}.unfinished")
        unfinished.unlink(missing_ok=True)
        if path.exists():
            raise MoveFailed(f"{path} exists already")
        create_database(unfinished)
        unfinished.chmod(0o600)
        with closing(open_database(unfinished)) as db:
            with write(db):
                counts = {name: _into_sqlite(line, db, name) for name in COLUMNS}
            _compare(db, line)
            db.execute("PRAGMA journal_mode = DELETE")  # all of it in one file
        sync(unfinished)
        line.own("ALTER TABLE leader RENAME TO leader_moved")
    unfinished.replace(path)
    sync(path.parent)
    return counts


def _into_postgres(db: Database, line: PostgresLine, name: str) -> int:
    columns = _columns(name)
    parts = [column for column, _ in PARTS.values()] if name == "jobs" else []
    count = 0
    with line.copied(f"COPY {name} ({_quoted([*columns, *parts])}) FROM STDIN") as put:
        for row in _rows_of(db, name):
            put(row + (parts_of(decode(row[-1], Job)) if parts else ()))
            count += 1
    return count


def _into_sqlite(line: PostgresLine, db: Database, name: str) -> int:
    columns = _columns(name)
    marks = ", ".join("?" * len(columns))
    sql = f"INSERT INTO {name} ({_quoted(columns)}) VALUES ({marks})"
    count, waiting = 0, list[Row]()
    for row in line.streamed(_select(name)):
        waiting.append(row)
        count += 1
        if len(waiting) == _AT_ONCE:
            db.executemany(sql, waiting)
            waiting.clear()
    db.executemany(sql, waiting)
    return count


def _compare(db: Database, line: PostgresLine) -> None:
    """Compare every row of every table, in the order of its key."""
    for name in COLUMNS:
        both = zip_longest(_rows_of(db, name), line.streamed(_select(name)))
        for number, (one, other) in enumerate(both):
            if one is None or other is None or _plain(one) != _plain(other):
                raise MoveFailed(f"row {number} of {name} differs after the move: nothing is moved")


def _plain(row: Row) -> Row:
    """The text without NUL, which PostgreSQL's texts cannot hold (postgres/line.py)."""
    return tuple(one.replace("\0", "\ufffd") if isinstance(one, str) else one for one in row)


def _rows_of(db: Database, name: str) -> Iterator[Row]:
    return iter(db.execute(_select(name)))


def _select(name: str) -> str:
    return f"SELECT {_quoted(_columns(name))} FROM {name} ORDER BY {_quoted(keys_of(name))}"


def _columns(name: str) -> list[str]:
    return [column.partition(":")[0] for column in COLUMNS[name].split()]


def _quoted(columns: list[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)
