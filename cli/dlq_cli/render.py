"""Text for people and for pipes: tables, colours, times, and nothing that a terminal would obey."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlq_common.instants import format_instant
from dlq_common.names import printable
from dlq_common.units import DAY, HOUR, MINUTE

_COLORS = {
    "running": "32", "profiling": "36", "up": "32", "completed": "32;2", "succeeded": "32;2",
    "failed": "31", "timed_out": "31", "node_lost": "31", "start_failed": "31", "down": "31",
    "preempted_lost": "31", "unreachable": "31",
    "held": "33", "cancelled": "33", "preempted": "33", "suspect": "33",
    "pausing": "35", "unknown": "35", "assigned": "36", "preparing": "36", "starting": "36",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Look:
    """How a stream wants to be written to."""

    tty: bool
    color: bool
    now_s: float  # for ages, which only terminals see

    def width(self) -> int:
        """Columns of the terminal."""
        return shutil.get_terminal_size().columns


@dataclass(frozen=True, slots=True)
class Cell:
    """A column's heading and manners."""

    heading: str
    right: bool = False
    most: int = 0  # characters on a terminal, 0: all; elsewhere nothing is ever cut
    state: bool = False  # coloured by its word


def table(
    cells: Sequence[Cell], rows: Iterable[Sequence[str]], look: Look, *, headings: bool = True
) -> str:
    """Aligned columns, two blanks apart, ended by a newline; empty without rows and headings."""
    body = [[_cut(clean_line(text), cell, look) for cell, text in zip(cells, row, strict=True)]
            for row in rows]  # fmt: skip
    head = [[cell.heading for cell in cells]] if headings else []
    widths = [max((len(row[i]) for row in head + body), default=0) for i in range(len(cells))]
    lines = [_line(row, cells, widths, look, color=False) for row in head]
    lines += [_line(row, cells, widths, look, color=look.color) for row in body]
    return "".join(f"{line}\n" for line in lines)


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """`name: value` lines with the values in one column; pairs without a value are left out."""
    kept = [(name, clean_line(value)) for name, value in pairs if value]
    width = max((len(name) for name, _ in kept), default=0)
    return "".join(f"{name + ':':<{width + 1}} {value}\n" for name, value in kept)


def clean_line(text: str) -> str:
    """Untrusted text for one line: control characters and escapes become `?`."""
    return text if text.isprintable() else printable(text)


def paint(word: str, look: Look, shown: str = "") -> str:
    """A state word in its colour; the word itself always stays."""
    text = shown or word
    code = _COLORS.get(word) if look.color else None
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


def when(epoch_s: float | None, look: Look) -> str:
    """An instant: how long ago on a terminal, absolute in UTC elsewhere; empty for None."""
    if epoch_s is None:
        return ""
    return f"{age(look.now_s - epoch_s)} ago" if look.tty else format_instant(epoch_s)


def age(seconds: float) -> str:
    """A duration in its two largest units: `3m20s`, `2h05m`, `4d03h`."""
    whole = max(0, int(seconds))
    if whole < MINUTE:
        return f"{whole}s"
    if whole < HOUR:
        return f"{whole // MINUTE}m{whole % MINUTE:02d}s"
    if whole < DAY:
        return f"{whole // HOUR}h{whole % HOUR // MINUTE:02d}m"
    return f"{whole // DAY}d{whole % DAY // HOUR:02d}h"


def number(value: float) -> str:
    """A number without a needless fraction."""
    return f"{value:g}" if abs(value) < 1e15 else repr(value)


def _cut(text: str, cell: Cell, look: Look) -> str:
    if not look.tty or not cell.most or len(text) <= cell.most:
        return text
    return text[: cell.most - 1] + "…"


def _line(
    row: Sequence[str], cells: Sequence[Cell], widths: Sequence[int], look: Look, *, color: bool
) -> str:
    padded = []
    for text, cell, width in zip(row, cells, widths, strict=True):
        shown = f"{text:>{width}}" if cell.right else f"{text:<{width}}"
        padded.append(paint(text, look, shown) if color and cell.state else shown)
    return "  ".join(padded).rstrip()
