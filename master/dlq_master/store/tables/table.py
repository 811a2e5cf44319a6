"""Small tables whose rows are values: one type for all of them, from the turn to the database.

A turn puts and drops values (`Batch`), the writer makes SQL of that, the loop and its readers keep
the same values in `Rows`. A new table is a line in `store/stored_tables.py` and a migration.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from dlq_master.store.tables.codec import encode

K = TypeVar("K")
V = TypeVar("V")


class Table(Generic[K, V]):
    """A table with a row for each value: its `key`, `columns` that queries read, and its body.

    `key` and `columns` are fields of the value, and columns of the same names.
    """

    def __init__(self, name: str, kind: type[V], key: str, *columns: str) -> None:
        self.name = name
        self.kind = kind
        self.key = key
        self.columns = columns
        # The names are those of this program, never of a caller.
        places = ", ".join("?" * (len(columns) + 2))
        changed = ", ".join(f"{column} = excluded.{column}" for column in (*columns, "body"))
        self.put_sql = (
            f"INSERT INTO {name} VALUES ({places}) ON CONFLICT ({key}) DO UPDATE SET {changed}"
        )
        self.drop_sql = f"DELETE FROM {name} WHERE {key} = ?"
        self.read_sql = f"SELECT body FROM {name} ORDER BY {key}"

    def key_of(self, value: V) -> K:
        key: K = getattr(value, self.key)
        return key

    def row_of(self, value: V) -> tuple[object, ...]:
        """The row of a value, in the order of the columns."""
        return (self.key_of(value), *(getattr(value, name) for name in self.columns), encode(value))


class Rows(dict[K, V]):
    """The values of one table by key, as the loop or its readers know them."""

    def __init__(self, table: Table[K, V], values: Iterable[V] = ()) -> None:
        super().__init__((table.key_of(value), value) for value in values)
        self.table = table

    def apply(self, changes: Changes) -> None:
        """Take over what a batch has changed in this table."""
        for key, value in changes.get(self.table, {}).items():
            if value is None:
                self.pop(key, None)
            else:
                self[key] = value


# The changes of a batch: by table and key the new value, or None for a dropped row.
Changes = dict[Table[Any, Any], dict[Any, Any]]


def put(table: Table[K, V], values: Iterable[V]) -> Changes:
    """The changes of a batch that puts these values."""
    return {table: {table.key_of(value): value for value in values}}
