"""The refusals of `dlq simulate`. Each error has a fault, a reason, a remedy and its exit code.

SimulateError
├── UsageError   exit 2: what was typed (an option, a cluster, a setting, a file that is not there)
└── DataError    exit 1: what a file holds (names file, line and column)
"""

from __future__ import annotations

LINE_AND_COLUMN = ("line", "column")


class SimulateError(Exception):
    """A refusal in three parts; `str()` is the one line users see, without the program's name."""

    exit_code = 1

    def __init__(self, what: str, why: str, remedy: str) -> None:
        super().__init__(f"{what}; {why}; {remedy}")
        self.what = what
        self.why = why
        self.remedy = remedy


class UsageError(SimulateError):
    """The command line asks for something that does not exist."""

    exit_code = 2


class DataError(SimulateError):
    """A file does not keep its contract; `line` counts from 1, `column` is the header's word.

    `words`: the file's names for these two, where they are not a line and a column.
    """

    exit_code = 1

    def __init__(
        self,
        path: str,
        why: str,
        remedy: str,
        *,
        line: int | None = None,
        column: str | None = None,
        words: tuple[str, str] = LINE_AND_COLUMN,
    ) -> None:
        where = path
        if line is not None:
            where += f", {words[0]} {line}"
        if column is not None:
            where += f", {words[1]} {column}"
        super().__init__(f"cannot use {where}", why, remedy)
        self.path = path
        self.line = line
        self.column = column
