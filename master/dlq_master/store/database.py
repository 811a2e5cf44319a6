"""One connection to a database, and the steps that bring its tables up to date.

It is sqlite3's own connection, in autocommit mode: transactions are begun by `open.write` alone.
"""

from __future__ import annotations

import sqlite3
from typing import Final

# The names of the steps that were taken. Databases have had it in this form from the beginning.
_APPLIED: Final = """CREATE TABLE IF NOT EXISTS _sqlite_migrations (
    id INTEGER PRIMARY KEY, migration_set TEXT, name TEXT, applied_at TEXT)"""
_APPLIED_ONCE: Final = """CREATE UNIQUE INDEX IF NOT EXISTS
    idx__sqlite_migrations_migration_set_name ON _sqlite_migrations (migration_set, name)"""

_TAKE: Final = """INSERT INTO _sqlite_migrations (migration_set, name, applied_at)
    VALUES (?, ?, datetime('now'))"""
_TABLES: Final = "SELECT name FROM sqlite_master WHERE type = 'table'"
_KEYS: Final = "SELECT name FROM pragma_table_info(?) WHERE pk ORDER BY pk"


class Database(sqlite3.Connection):
    """A connection that knows the names of its tables."""

    def table_names(self) -> set[str]:
        """All tables that are there."""
        return {
            name for (name,) in self.execute("SELECT name FROM sqlite_master WHERE type='table'")
        }

    def keys_of(self, table: str) -> list[str]:
        """The columns of a table's primary key, in their order."""
        columns = self.execute(
            "SELECT name FROM pragma_table_info(?) WHERE pk ORDER BY pk", [table]
        )
        return [name for (name,) in columns]


class SchemaSteps:
    """Named steps of a schema, in order. A database remembers the steps that it has taken."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._steps: dict[str, tuple[str, ...]] = {}

    def add(self, name: str, *statements: str) -> None:
        """The next step."""
        if name in self._steps:
            raise ValueError(f"there are two steps {name!r}")
        self._steps[name] = statements

    def pending(self, db: Database) -> list[str]:
        """The steps that this database has not taken yet."""
        taken: set[str] = set()
        if "_sqlite_migrations" in db.table_names():
            rows = db.execute(
                "SELECT name FROM _sqlite_migrations WHERE migration_set = ?", [self.name]
            )
            taken = {name for (name,) in rows}
        return [name for name in self._steps if name not in taken]

    def apply(self, db: Database) -> None:
        """Take these steps. The caller holds the transaction."""
        pending = self.pending(db)
        if not pending:
            return
        for statement in (_APPLIED, _APPLIED_ONCE):
            db.execute(statement)
        for name in pending:
            for statement in self._steps[name]:
                db.execute(statement)
            db.execute(_TAKE, [self.name, name])
