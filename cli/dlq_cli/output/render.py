"""Text for people and for pipes: tables, colours, times, and nothing that a terminal would obey."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import TypeVar

from dlq_cli.output.zone import in_viewers_zone, local_text
from dlq_common.text.instants import format_instant
from dlq_common.text.names import printable
from dlq_common.text.units import DAY, HOUR, MINUTE

T = TypeVar("T")

_COLORS = {
    "running": "32", "profiling": "36", "up": "32", "completed": "32;2", "succeeded": "32;2",
    "failed": "31", "timed_out": "31", "node_lost": "31", "start_failed": "31", "down": "31",
    "preempted_lost": "31", "unreachable": "31",
    "held": "33", "cancelled": "33", "preempted": "33", "suspect": "33",
    "suspended": "35", "pausing": "35", "unknown": "35",
    "assigned": "36", "preparing": "36", "starting": "36",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class OutputLook:
    """How a stream wants to be written to."""

    tty: bool
    color: bool
    now_s: float  # for ages, which only terminals see
    zone: tzinfo | None = None  # of instants; None: the viewer's own

    def width(self) -> int:
        """Columns of the terminal."""
        import shutil

        return shutil.get_terminal_size().columns


@dataclass(frozen=True, slots=True)
class Cell:
    """A column's heading and manners."""

    heading: str
    right: bool = False
    most: int = 0  # characters on a terminal, 0: all; elsewhere nothing is ever cut
    least: int = (
        0  # characters that a narrow terminal leaves of it, 0: all as long as others can give way
    )
    drop: int = 0  # the highest goes first where there is no room; 0: it stays
    state: bool = False  # coloured by its word


def table(
    cells: Sequence[Cell], rows: Iterable[Sequence[str]], look: OutputLook, *, headings: bool = True
) -> str:
    """Aligned columns, two blanks apart, ended by a newline; empty without rows and headings.

    A terminal never wraps a line: columns are cut, then left out, then cut further. A pipe gets all
    of it.
    """
    columns = list(zip(*rows, strict=True)) or [()] * len(cells)
    return table_of_columns(cells, columns, look, headings=headings)


def table_of_columns(
    cells: Sequence[Cell],
    columns: Sequence[Sequence[str]],
    look: OutputLook,
    *,
    headings: bool = True,
) -> str:
    """The same of the texts of each column."""
    body = [_shown(texts, cell, look) for cell, texts in zip(cells, columns, strict=True)]
    widths = [
        max(map(len, (cell.heading, *texts) if headings else texts), default=0)
        for cell, texts in zip(cells, body, strict=True)
    ]
    empty = {i for i, texts in enumerate(body) if not any(texts)}
    kept = fitted(cells, widths, look.width(), empty) if look.tty else dict(enumerate(widths))
    heads = [_padded([cells[i].heading], cells[i], width) for i, width in kept.items()]
    padded = [_padded(body[i], cells[i], width) for i, width in kept.items()]
    if look.color:
        padded = [
            [paint(word, look, text) for word, text in zip(body[i], texts, strict=True)]
            if cells[i].state
            else texts
            for i, texts in zip(kept, padded, strict=True)
        ]
    lines = [*(zip(*heads, strict=True) if headings else ()), *zip(*padded, strict=True)]
    return "".join([f"{'  '.join(line).rstrip()}\n" for line in lines])


Columns = Mapping[Cell, Callable[[T], str]]  # each with its text for a row


def listing(columns: Columns[T], found: Iterable[T], look: OutputLook) -> str:
    """The table of some things, one a line."""
    return table(list(columns), [[text(one) for text in columns.values()] for one in found], look)


_GAP = 2  # blanks between columns
_SHORTEST = 4  # of a column that is cut although it should stay whole


def fitted(
    cells: Sequence[Cell], widths: Sequence[int], room: int, empty: Container[int] = ()
) -> dict[int, int]:
    """The columns that fit into the room: their places with their widths.

    Columns with a `least` are cut down to it, the widest first. Then columns go, `empty` ones
    first, by their `drop`. If no more can go, all are cut, and at last the right ones go.
    """
    kept = dict(enumerate(widths))
    while True:
        least = {i: min(kept[i], cells[i].least or kept[i]) for i in kept}
        if _total(least) <= room:
            return _shrunk(kept, least, room)
        droppable = [i for i in kept if cells[i].drop]
        if not droppable:
            return _forced(kept, room)
        del kept[max(droppable, key=lambda i: (i in empty, cells[i].drop))]


def _forced(kept: dict[int, int], room: int) -> dict[int, int]:
    """Cut as far as anything can still be read; one column is as wide as the terminal."""
    while True:
        shrunk = _shrunk(kept, {i: min(width, _SHORTEST) for i, width in kept.items()}, room)
        if _total(shrunk) <= room:
            return shrunk
        if len(kept) == 1:
            return dict.fromkeys(kept, max(1, room))
        del kept[max(kept)]


def _total(widths: Mapping[int, int]) -> int:
    return sum(widths.values()) + _GAP * (len(widths) - 1)


def _shrunk(widths: dict[int, int], least: Mapping[int, int], room: int) -> dict[int, int]:
    """Narrower by the excess, as far as possible; the widest column gives first."""
    shrunk = dict(widths)
    while (over := _total(shrunk) - room) > 0:
        giving = [i for i in shrunk if shrunk[i] > least[i]]
        if not giving:
            break
        widest = max(giving, key=lambda i: shrunk[i])
        rest = max((shrunk[i] for i in giving if i != widest), default=0)
        shrunk[widest] -= max(1, min(over, shrunk[widest] - max(rest, least[widest])))
    return shrunk


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """`name: value` lines with the values in one column; pairs without a value are left out."""
    kept = [(name, clean_line(value)) for name, value in pairs if value]
    width = max((len(name) for name, _ in kept), default=0)
    return "".join(f"{name + ':':<{width + 1}} {value}\n" for name, value in kept)


def clean_line(text: str) -> str:
    """Untrusted text for one line: control characters and escapes become `?`."""
    return text if text.isprintable() else printable(text)


def clean_lines(texts: Sequence[str]) -> Sequence[str]:
    """The same of many; nearly always all of them are clean."""
    return texts if "".join(texts).isprintable() else [clean_line(text) for text in texts]


def paint(word: str, look: OutputLook, shown: str = "") -> str:
    """A state word in its colour; the word itself always stays."""
    text = shown or word
    code = _COLORS.get(word) if look.color else None
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


def when(epoch_s: float | None, look: OutputLook) -> str:
    """An instant for a table: how long ago or ahead on a terminal, RFC 3339 in UTC elsewhere; empty
    for None.
    """
    if epoch_s is None:
        return ""
    if not look.tty:
        return format_instant(epoch_s)
    ahead_s = epoch_s - look.now_s
    return f"in {age(ahead_s)}" if ahead_s >= 1.0 else f"{age(-ahead_s)} ago"


def absolute(epoch_s: float, look: OutputLook) -> str:
    """An instant: in the viewer's zone on a terminal, RFC 3339 in UTC elsewhere."""
    return local_text(epoch_s, look.zone) if look.tty else format_instant(epoch_s)


def moment(epoch_s: float, look: OutputLook) -> str:
    """The same where there is room: on a terminal also how long ago or ahead."""
    if not look.tty:
        return format_instant(epoch_s)
    return f"{local_text(epoch_s, look.zone)} ({when(epoch_s, look)})"


def sentence(text: str, look: OutputLook) -> str:
    """A sentence of the master's on one line, its instants as people see them on a terminal."""
    line = clean_line(text)
    return in_viewers_zone(line, look.zone) if look.tty else line


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


def _shown(texts: Sequence[str], cell: Cell, look: OutputLook) -> Sequence[str]:
    """A column on one line each, and as far as it is shown on a terminal."""
    clean = clean_lines(texts)
    if not look.tty or not cell.most:
        return clean
    return _cut(clean, cell.most)


def _cut(texts: Sequence[str], most: int) -> Sequence[str]:
    if max(map(len, texts), default=0) <= most:
        return texts
    return [text if len(text) <= most else f"{text[: most - 1]}…" for text in texts]


def _padded(texts: Sequence[str], cell: Cell, width: int) -> Sequence[str]:
    """A column cut and filled to its width."""
    cut = _cut(texts, width)
    return [text.rjust(width) if cell.right else text.ljust(width) for text in cut]
