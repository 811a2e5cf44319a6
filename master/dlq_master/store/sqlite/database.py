"""One connection to a database, and the steps that bring its tables up to date.

It is sqlite3's own connection in autocommit mode; only `open.write` begins transactions.
sqlite-utils applies the steps on the same connection.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlite_utils import Database as Tables


class Database(sqlite3.Connection):
    """A connection that knows the names of its tables."""

    def table_names(self) -> set[str]:
        """All existing tables."""
        return {
            name for (name,) in self.execute("SELECT name FROM sqlite_master WHERE type='table'")
        }

    def keys_of(self, table: str) -> list[str]:
        """The columns of a table's primary key, in order."""
        columns = self.execute(
            "SELECT name FROM pragma_table_info(?) WHERE pk ORDER BY pk", [table]
        )
        return [name for (name,) in columns]

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """All reads of the block see one moment."""
        self.execute("BEGIN")
        try:
            yield
        finally:
            self.execute("ROLLBACK")


class SchemaSteps:
    """Named steps of a schema, in order. A database remembers the steps that it has taken."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._steps: dict[str, tuple[str, ...]] = {}

    def add(self, name: str, *statements: str) -> None:
        """Add the next step."""
        if name in self._steps:
            raise ValueError(f"there are two steps {name!r}")
        self._steps[name] = statements

    def pending(self, db: Database) -> list[str]:
        """The steps that this database has not taken."""
        taken: set[str] = set()
        if "_sqlite_migrations" in db.table_names():
            rows = db.execute(
                "SELECT name FROM _sqlite_migrations WHERE migration_set = ?", [self.name]
            )
            taken = {name for (name,) in rows}
        return [name for name in self._steps if name not in taken]

    def apply(self, db: Database) -> None:
        """Apply these steps by sqlite-utils, in the caller's transaction."""
        if not self.pending(db):
            return
        # Only a new database, or an older one, pays for this import: a third of the start.
        from sqlite_utils import Database as Tables
        from sqlite_utils import Migrations

        steps = Migrations(self.name)
        for name, statements in self._steps.items():
            steps(name=name)(_running(statements))
        steps.apply(Tables(db, strict=True))


def _running(statements: Iterable[str]) -> Callable[[Tables], None]:
    def run(tables: Tables) -> None:
        for statement in statements:
            tables.execute(statement)

    return run
