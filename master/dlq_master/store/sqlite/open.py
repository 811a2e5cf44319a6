"""Opening the database: never silently empty, never silently damaged, never by two masters."""

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

from dlq_master.store.port import DatabaseDamaged, DatabaseInUse
from dlq_master.store.sqlite.database import Database
from dlq_master.store.sqlite.migrations import TABLES, migrations
from dlq_master.store.tables.codec import is_intact, is_spec_intact

# The columns that carry a checksum, with its test.
INTACT: Final = {"body": "is_intact(body)", "spec": "is_spec_intact(spec)"}
APPLICATION_ID: Final = 0x646C7131  # "dlq1", in the file's header: an empty file is not ours


def create_database(path: Path) -> None:
    """Make a new, empty database, whole or not at all. Refuses an existing file."""
    if path.exists():
        raise DatabaseDamaged(f"{path} exists already")
    unfinished = path.with_name(f"{path.name}.incomplete")
    unfinished.unlink(missing_ok=True)
    with closing(connect(unfinished, mode="rwc")) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        with write(db):
            migrations.apply(db)
    settle_file(unfinished, path)


class EarlyCheck:
    """SQLite's own check of a whole database in a thread.

    It needs no interpreter, so that a master can import its modules meanwhile.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fault: str | None = None
        self._state = self._now()
        self._thread = threading.Thread(target=self._look, name="store-check", daemon=True)
        self._thread.start()

    def fault(self) -> str | None:
        """The fault that it has found, given once; "": none; None: the check was impossible, or is
        outdated.
        """
        self._thread.join()
        fault, self._fault = self._fault, None
        return fault if self._now() == self._state else None

    def _now(self) -> list[tuple[int, int]]:
        """A value that changes with every write."""
        files = (self._path, self._path.with_name(f"{self._path.name}-wal"))
        found = [file.stat() for file in files if file.exists()]
        return [(one.st_size, one.st_mtime_ns) for one in found if one.st_size]

    def _look(self) -> None:
        with suppress(sqlite3.Error), closing(connect(self._path)) as db:
            self._fault = _integrity(db)


def open_database(path: Path, early: EarlyCheck | None = None) -> Database:
    """Open an existing database for the writer, checked and migrated.

    DatabaseDamaged: the file is missing, is not ours, fails `integrity_check`, lacks a table, or
    has a body with a wrong checksum. An empty start would forget acknowledged jobs. DatabaseInUse:
    it is locked.
    """
    if not path.exists():
        raise DatabaseDamaged(
            f"{path} does not exist; make it with `dlq-master init`, or restore it"
        )
    try:
        return _checked(path, early)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            raise DatabaseInUse(f"{path} is locked by another process") from error
        raise _damaged(path, str(error)) from error
    except sqlite3.DatabaseError as error:
        raise _damaged(path, str(error)) from error


def _checked(path: Path, early: EarlyCheck | None) -> Database:
    db = connect(path, mode="rw")
    try:
        if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise _damaged(path, "not a database of dlq, or emptied")
        known = None if early is None else early.fault()
        if fault := (_integrity(db) if known is None else known) or _damaged_row(db):
            raise _damaged(path, fault)
        missing = TABLES - db.table_names()
        if missing and ("jobs" in missing or not migrations.pending(db)):
            raise _damaged(path, f"lacks {', '.join(sorted(missing))}")
        db.execute("PRAGMA journal_mode = WAL")  # a restored backup is not in this mode
        with write(db):
            migrations.apply(db)
    except BaseException:
        db.close()
        raise
    return db


def fault_of(db: Database) -> str:
    """The faults of a database that can be opened; "": none. Reads all of it."""
    return _integrity(db) or _damaged_row(db)


def _integrity(db: Database) -> str:
    verdict = str(db.execute("PRAGMA integrity_check(1)").fetchone()[0])
    return "" if verdict == "ok" else verdict


def _damaged_row(db: Database) -> str:
    db.create_function("is_intact", 1, is_intact, deterministic=True)
    db.create_function("is_spec_intact", 1, is_spec_intact, deterministic=True)
    for name in sorted(TABLES & db.table_names()):
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({name})")]
        intact = next((test for column, test in INTACT.items() if column in columns), "")
        if not intact:
            continue
        key = columns[0]
        row = db.execute(f"SELECT {key} FROM {name} WHERE NOT {intact} LIMIT 1").fetchone()
        if row is not None:
            return f"the row {row[0]} of {name} does not match its checksum"
    return ""


def _damaged(path: Path, what: str) -> DatabaseDamaged:
    return DatabaseDamaged(
        f"{path}: {what}; restore a backup", hint="dlq-master restore (docs/running/backup.md)"
    )


def connect(path: Path, *, mode: str = "ro") -> Database:
    """One connection with the product's settings, for one thread at a time."""
    db = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        factory=Database,
    )
    try:
        for pragma in ("busy_timeout=5000", "synchronous=FULL", "foreign_keys=ON"):
            db.execute(f"PRAGMA {pragma}")
    except BaseException:
        db.close()
        raise
    return db


def read_meta(path: Path, key: str) -> str | None:
    """One fact of a database about itself, without opening it for the writer; None: it has none.

    DatabaseDamaged: there is no database, or it cannot be read.
    """
    try:
        with closing(connect(path)) as db:
            row = db.execute("SELECT value FROM meta WHERE key = ?", [key]).fetchone()
    except sqlite3.Error as error:
        raise _damaged(path, str(error)) from error
    return None if row is None else str(row[0])


def claim(path: Path) -> int:
    """Become the only process that writes this database; the returned descriptor holds the claim.

    DatabaseInUse: another process has it. The kernel frees the claim however the process ends.
    """
    held = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(held)
        raise DatabaseInUse(f"{path} is in use by another master") from error
    return held


def settle_file(unfinished: Path, target: Path) -> None:
    """Put a finished file in its place so that it, and its name, survive a power cut."""
    sync(unfinished)
    unfinished.replace(target)
    sync(target.parent)


def sync(path: Path) -> None:
    """Wait until a file, or the names in a directory, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def write(db: Database) -> Iterator[Database]:
    """A transaction: all or nothing.

    It is BEGIN IMMEDIATE. A deferred BEGIN fails at once, without the busy timeout, when a reader
    turns writer. Any failure, of COMMIT too, is raised as it was and leaves no transaction open.
    SQLite itself rolls back after some disk errors, and a second ROLLBACK would hide the first
    error.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        yield db
        db.execute("COMMIT")
    except BaseException:
        db.rollback()
        raise
