"""Tables of pages, made of the columns of the command line: its headings, its words, its order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, TypeVar

from dlq_cli.facts.common import Facts
from dlq_cli.output.render import Cell, Columns, clean_line
from dlq_cli.output.rows import heading, shown_value

T = TypeVar("T")
# Headings of columns that name jobs, or attempts of jobs: their cells lead there.
_OF_JOBS = frozenset({"JOB", "JOB_ID", "JOBS", "ATTEMPTS", "FOR JOBS"})


class Heading(NamedTuple):
    """The head of a column."""

    text: str
    right: bool
    jobs: bool  # its cells name jobs


class Sheet(NamedTuple):
    """A table as a page shows it; `more` rows are left out."""

    headings: Sequence[Heading]
    rows: Sequence[Sequence[str]]
    more: int = 0


def sheet(cells: Iterable[Cell], rows: Iterable[Sequence[str]], most: int = 0) -> Sheet:
    """These columns; `most`: so many rows, 0: all."""
    found = [[clean_line(text) for text in row] for row in rows]
    heads = [_heading(cell.heading, right=cell.right) for cell in cells]
    return Sheet(heads, found[:most] if most else found, max(0, len(found) - most) if most else 0)


def sheet_of(columns: Columns[T], found: Iterable[T]) -> Sheet:
    """The list of some things."""
    return sheet(columns, [[text(one) for text in columns.values()] for one in found])


def facts_sheet(rows: Sequence[Facts], words: Collection[str], most: int = 0) -> Sheet:
    """A column for each key, as the reports of the command line have them."""
    names = list(rows[0]) if rows else []
    cells = [Cell(heading(name), right=name not in words) for name in names]
    return sheet(cells, [[shown_value(value) for value in row.values()] for row in rows], most)


def _heading(text: str, *, right: bool) -> Heading:
    words = text.replace("_", " ").capitalize().replace("Gpu", "GPU")
    return Heading(words, right, text in _OF_JOBS)
