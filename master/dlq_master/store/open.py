"""Opening the database: never silently empty, never silently damaged."""

import sqlite3
from pathlib import Path

from sqlite_utils import Database

from dlq_common.errors import DlqError
from dlq_master.store.migrations import TABLES, migrations
from dlq_master.store.write import write


class DatabaseDamaged(DlqError):
    """The file is there but cannot be trusted. The master refuses to start on it."""

    reason = "DATABASE_DAMAGED"


def create_database(path: Path) -> None:
    """Make a new, empty database. Refuses an existing file."""
    if path.exists():
        raise DatabaseDamaged(f"{path} exists already")
    db = connect(path)
    with write(db):
        migrations.apply(db)
    db.close()


def open_database(path: Path) -> Database:
    """Open an existing database for the writer, checked and migrated.

    Raises DatabaseDamaged when the file is missing, fails `quick_check` or lacks a table: an empty
    start would forget acknowledged jobs.
    """
    if not path.exists():
        raise DatabaseDamaged(
            f"{path} does not exist; make it with `dlq-master init`, or restore it"
        )
    try:
        db = connect(path)
        verdict = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if verdict != "ok":
            raise DatabaseDamaged(f"{path}: {verdict}; restore a backup")
        with write(db):
            migrations.apply(db)
        missing = TABLES - set(db.table_names())
    except sqlite3.DatabaseError as error:
        raise DatabaseDamaged(f"{path}: {error}; restore a backup") from error
    if missing:
        raise DatabaseDamaged(f"{path} lacks {', '.join(sorted(missing))}; restore a backup")
    return db


def connect(path: Path, *, read_only: bool = False) -> Database:
    """One connection with the product's settings. Use it in the thread that made it."""
    mode = "ro" if read_only else "rwc"
    connection = sqlite3.connect(
        f"file:{path}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False
    )
    db = Database(connection, strict=True)
    if not read_only:
        db.enable_wal()
    for pragma in ("synchronous=FULL", "foreign_keys=ON", "busy_timeout=5000"):
        db.execute(f"PRAGMA {pragma}")
    return db
