"""The words of one kind of trace file, and the reading of its rows as jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dlq_simulator.columns import Parser
from dlq_simulator.errors import LINE_AND_COLUMN

Values = dict[str, Any]


class DialectColumn(NamedTuple):
    """Our name for a column, and the conversion of its text."""

    name: str
    parse: Parser


class SkipRow(Exception):
    """A row that is no job and no mistake; the text, a reason, is counted and reported."""


def unchanged(values: Values) -> Values:
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One format.

    `marks`: columns that together tell it from the others. `columns`: theirs to ours. `required`:
    theirs; `may_be_empty`: the required ones that may be empty in a row. `silent`: known to have no
    meaning here, so ignored without a note. `finish`: values as parsed to the values of a TraceJob;
    it may raise BadValue or SkipRow. `companion`: facts of each job id from a file beside it.
    `rebase`: times count from some calendar, so the first submit becomes 0. `note`: a remark for
    every reader of such a file. `words`: its names for lines and columns.
    """

    name: str
    marks: frozenset[str]
    columns: Mapping[str, DialectColumn]
    required: tuple[str, ...]
    may_be_empty: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    finish: Callable[[Values], Values] = unchanged
    companion: Callable[[Path], Mapping[str, Values]] | None = None
    rebase: bool = False
    note: str | None = None
    words: tuple[str, str] = LINE_AND_COLUMN

    @property
    def theirs(self) -> Mapping[str, str]:
        """The file's words for our columns, for messages."""
        return {column.name: their for their, column in self.columns.items()}

    def column(self, ours: str) -> str:
        """The file's word for one of our columns."""
        return self.theirs.get(ours, ours)
