"""Values of a TOML table, each checked; errors name the table and the key."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dlq_common.text.suggest import did_you_mean
from dlq_simulator.errors import DataError

Table = Mapping[str, Any]


def only(where: str, table: Table, known: Iterable[str]) -> None:
    """DataError at the first key that does not belong there."""
    names = tuple(known)
    for key in table:
        if key not in names:
            why = f"unknown key {key!r}{did_you_mean(key, names)}"
            raise DataError(where, why, f"known keys: {', '.join(names)}")


def tables(path: str, document: Table, kind: str) -> Iterator[tuple[str, Table]]:
    """The tables [[kind]] of a document, each with its place in errors before it."""
    found = document.get(kind, [])
    if not isinstance(found, list):
        raise DataError(path, f"it has no [[{kind}]] table", f"write [[{kind}]], keys below it")
    for number, table in enumerate(found, 1):
        where = f"{path}, [[{kind}]] table {number}"
        if not isinstance(table, dict):
            raise DataError(where, "it is not a table", f"write [[{kind}]] and keys below it")
        yield where, table


def text(where: str, table: Table, key: str, default: str) -> str:
    """A word that is not empty."""
    value = table.get(key, default)
    if not isinstance(value, str) or not value:
        raise DataError(where, f"{key} is not a word", f'write {key} = "..."')
    return value


def whole(where: str, table: Table, key: str, default: int | None = None, least: int = 1) -> int:
    """A whole number, `least` or more; required without a default."""
    value = table.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        above = f"above {least - 1}" if least else "of 0 or more"
        raise DataError(where, f"{key} is not a whole number {above}", f"write {key} = 4")
    return value


def positive(where: str, table: Table, key: str, default: float) -> int | float:
    """A number above 0."""
    value = number(where, table, key, default)
    if value is None or value <= 0:
        raise DataError(where, f"{key} is not a number above 0", f"write {key} = 1.5")
    return value


def number(where: str, table: Table, key: str, default: float | None = None) -> int | float | None:
    """A number of 0 or more, or the default."""
    value = table.get(key, default)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise DataError(where, f"{key} is not a number of 0 or more", f"write {key} = 1.5")
    return value
