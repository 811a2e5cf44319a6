"""The one way to open a write transaction."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlite_utils import Database


@contextmanager
def write(db: Database) -> Iterator[Database]:
    """All or nothing. BEGIN IMMEDIATE, because the deferred BEGIN of sqlite-utils fails at once,
    without the busy timeout, when a reader turns writer. Its `atomic()` inside becomes a savepoint.

    A failure, of COMMIT too, leaves no transaction open and is raised as it was: SQLite has itself
    rolled back after some errors of the disk, and a second ROLLBACK would hide the first.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        yield db
        db.execute("COMMIT")
    except BaseException:
        if db.conn.in_transaction:
            db.conn.execute("ROLLBACK")
        raise
