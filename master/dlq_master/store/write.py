"""The one way to open a write transaction."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlite_utils import Database


@contextmanager
def write(db: Database) -> Iterator[Database]:
    """All or nothing. BEGIN IMMEDIATE, because sqlite-utils' own deferred BEGIN fails at once, not
    after the busy timeout, when a reader turns writer; its `atomic()` inside becomes a savepoint."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield db
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")
