"""Rows of facts as a table for people, or as comma-separated lines for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Sequence

from dlq_cli.facts.common import Facts
from dlq_cli.output.render import Cell, OutputLook, table


def rows_text(rows: Sequence[Facts], words: Collection[str], look: OutputLook) -> str:
    """A column for each key, words to the left and numbers to the right; empty without rows."""
    if not rows:
        return ""
    cells = [Cell(heading(name), right=name not in words) for name in rows[0]]
    return table(cells, [[shown_value(value) for value in row.values()] for row in rows], look)


def rows_csv(rows: Sequence[Facts], names: Sequence[str]) -> str:
    """The names, then a line for each row; nothing is an empty cell."""
    made = io.StringIO()
    writer = csv.DictWriter(made, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return made.getvalue()


def heading(name: str) -> str:
    """The heading of a column of facts."""
    return name.removesuffix("_gpu_hours").upper() if name != "gpu_hours" else "HELD"


def shown_value(value: object) -> str:
    """A fact in its cell."""
    return "-" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)
