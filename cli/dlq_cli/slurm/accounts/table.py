"""Tables as sacct, sacctmgr and sshare print them: headings, a rule, cut columns; or `a|b|`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import click

from dlq_cli.output.render import clean_line
from dlq_cli.slurm.words import column_width

Row = TypeVar("Row")


class AccountColumn(NamedTuple, Generic[Row]):
    """A heading, a width (negative: from the left), and the text of a row."""

    heading: str
    width: int
    text: Callable[[Row], str]


class TableForm(NamedTuple):
    """How the table is printed; `bar` empty: in columns."""

    headings: bool = True
    bar: str = ""
    ends: bool = False  # each line ends with a bar


def form_of(options: Mapping[str, str], *, quiet: str = "noheader") -> TableForm:
    """By --noheader, --parsable and --parsable2."""
    parsable = bool({"parsable", "parsable2"} & options.keys())
    bar = options.get("delimiter", "|") if parsable else ""
    ends = "parsable" in options and "parsable2" not in options
    return TableForm(quiet not in options, bar, ends)


def chosen(
    columns: Mapping[str, AccountColumn[Row]], words: Sequence[str]
) -> tuple[list[AccountColumn[Row]], str]:
    """The columns of `User%30,account%-20`, in any case, by their beginnings; and the first word
    that is none (empty: all are).
    """
    found: list[AccountColumn[Row]] = []
    for word in words:
        name, _, width = word.partition("%")
        low = name.lower()
        key = low if low in columns else next((k for k in columns if low and k.startswith(low)), "")
        if not key:
            return found, name
        column = columns[key]
        if (asked := column_width(width)) is not None:
            column = column._replace(width=asked)
        found.append(column)
    return found, ""


def print_table(
    columns: Sequence[AccountColumn[Row]], rows: Sequence[Row], form: TableForm
) -> None:
    """Text of others cannot leave its line."""
    widths = [column.width for column in columns]
    lines = [[column.text(row) for column in columns] for row in rows]
    if form.headings and form.bar:
        lines.insert(0, [column.heading for column in columns])
    elif form.headings:  # a heading is cut without a mark
        lines.insert(0, [column.heading[: abs(column.width)] for column in columns])
        lines.insert(1, ["-" * abs(width) for width in widths])
    if lines:
        click.echo("\n".join(clean_line(_line(line, widths, form)) for line in lines))


def _line(row: Sequence[str], widths: Sequence[int], form: TableForm) -> str:
    if form.bar:
        return form.bar.join([*row, ""] if form.ends else row)
    return "".join(f"{fill(text, width)} " for text, width in zip(row, widths, strict=True))


def fill(text: str, width: int) -> str:
    """Padded, or cut with Slurm's `+`."""
    most = abs(width)
    if len(text) > most:
        text = f"{text[: most - 1]}+" if most else ""
    return text.ljust(most) if width < 0 else text.rjust(most)
