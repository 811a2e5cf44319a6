"""Lines of a figure from the table that stands beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.reproduce.case import Printed
from benchmarks.support.drawing import Points

Rows = Mapping[str, Mapping[str, object]]


def down(rows: Rows, columns: Iterable[str], places: Mapping[str, float]) -> dict[str, Points]:
    """A line for each column. `places`: the rows, and where each stands along x."""
    return {column: _numbers(rows, places.items(), column) for column in columns}


def across(rows: Rows, names: Iterable[str], places: Mapping[str, float]) -> dict[str, Points]:
    """A line for each row. `places`: the columns, and where each stands along x."""
    turned: dict[str, dict[str, object]] = {}
    for name in names:
        for column, value in rows.get(name, {}).items():
            turned.setdefault(column, {})[name] = value
    return down(turned, names, places)


def in_a_row(names: Sequence[str]) -> dict[str, float]:
    """Names as ticks: at 0, 1 and so on."""
    return {name: float(at) for at, name in enumerate(names)}


def printed(
    paper: Printed, columns: Iterable[str], places: Mapping[str, float], under: str = "paper"
) -> dict[str, Points]:
    """The paper's figures at the same places, in one list."""
    found = [point for points in down(paper, columns, places).values() for point in points]
    return {under: found} if found else {}


def _numbers(rows: Rows, places: Iterable[tuple[str, float]], column: str) -> Points:
    """The points that have a number."""
    found = [(at, rows.get(row, {}).get(column)) for row, at in places]
    return [(at, float(value)) for at, value in found if isinstance(value, int | float)]
