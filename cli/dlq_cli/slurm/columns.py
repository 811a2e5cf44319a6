"""The formats of squeue and sinfo: `-o '%.18i %j'` and `-O JobID:10,Name:.20`.

A program has one table of `Letter`s. Widths, the cut and the padding are Slurm's. A column without
a width is as wide as its text. Blanks at the end of a line stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import click

from dlq_cli.output.render import clean_line, clean_lines
from dlq_cli.slurm.words import column_width

Row = TypeVar("Row")

_LETTER = re.compile(r"([^%]*)%(\.?)([0-9]*)(.)", re.DOTALL)
_NAMED = re.compile(r"([^:]*)(?::(\.?)([0-9]*)(.*))?", re.DOTALL)
_NAME_WIDTH = 20  # of -O, where none is said


class Letter(NamedTuple, Generic[Row]):
    """One field of a program: its heading, its letter of -o (empty: none), its names of -O in
    lower-case words, and its text.
    """

    heading: str
    letter: str
    names: tuple[str, ...]
    text: Callable[[Row], str]
    detailed: bool = False  # the text reads what a plain list leaves out


class LaidOut(NamedTuple, Generic[Row]):
    """A field in a format; none: text alone."""

    field: Letter[Row] | None
    width: int = 0
    right: bool = False
    before: str = ""
    after: str = ""

    def fill(self, texts: Sequence[str]) -> Sequence[str]:
        """Each cut and padded as Slurm does."""
        width = self.width
        if width and self.right:
            texts = [text[:width].rjust(width) for text in texts]
        elif width:
            texts = [text[:width].ljust(width) for text in texts]
        if self.before or self.after:
            texts = [f"{self.before}{text}{self.after}" for text in texts]
        return texts


class FieldTable(Generic[Row]):
    """All fields of a program."""

    def __init__(self, program: str, kind: str, fields: Sequence[Letter[Row]]) -> None:
        """`kind`: the beginning of the error about a letter that is not there."""
        self.fields = fields
        self._program, self._kind = program, kind
        self.by_letter = {field.letter: field for field in fields if field.letter}
        self.by_name = {name: field for field in fields for name in field.names}

    def by_letters(self, text: str) -> list[LaidOut[Row]]:
        """The columns of `-o`. A letter that is not there stays as text, after a line on stderr,
        as in Slurm.
        """
        if text.lower() == "%all":
            return self._all()
        columns: list[LaidOut[Row]] = []
        end = 0
        for found in _LETTER.finditer(text):
            before, right, width, letter = found.groups()
            end = found.end()
            field = self.by_letter.get(letter)
            if field is None:
                click.echo(f"{self._kind}{letter}", err=True)
                columns.append(LaidOut(None, before=found[0]))
            else:
                columns.append(LaidOut(field, column_width(width) or 0, bool(right), before))
        if text[end:]:
            columns.append(LaidOut(None, before=text[end:]))
        return columns

    def _all(self) -> list[LaidOut[Row]]:
        fields = [field for field in self.fields if field.letter]
        bars = ["|"] * (len(fields) - 1) + [""]
        return [LaidOut(field, after=bar) for field, bar in zip(fields, bars, strict=True)]

    def by_names(self, text: str) -> list[LaidOut[Row]]:
        """The columns of `-O`. A name that is not there has no column, after a line on stderr."""
        columns: list[LaidOut[Row]] = []
        for word in text.split(","):
            found = _NAMED.fullmatch(word.strip())
            field = self.by_name.get(found[1].lower()) if found else None
            if found is None or field is None:
                said = f"{self._program}: error: Invalid job format specification: "
                click.echo(f"{said}{clean_line(word.partition(':')[0])}", err=True)
                continue
            width = column_width(found[3] or "")
            columns.append(
                LaidOut(
                    field,
                    _NAME_WIDTH if width is None else width,
                    found[2] == ".",
                    "",
                    found[4] or "",
                )
            )
        return columns


def needs_detail(columns: Sequence[LaidOut[Row]]) -> bool:
    return any(column.field is not None and column.field.detailed for column in columns)


def heading(columns: Sequence[LaidOut[Row]]) -> str:
    return "".join(each.fill([each.field.heading if each.field else ""])[0] for each in columns)


def lines(columns: Sequence[LaidOut[Row]], rows: Sequence[Row]) -> Sequence[str]:
    """A line of output for each row; untrusted text cannot leave it."""
    filled = [
        each.fill(list(map(each.field.text, rows)) if each.field else [""] * len(rows))
        for each in columns
    ]
    return clean_lines(
        list(map("".join, zip(*filled, strict=True))) if filled else [""] * len(rows)
    )
