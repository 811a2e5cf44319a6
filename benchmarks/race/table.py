"""The result of a race as text: a line for each row, and the table at the end."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.race.pairs import Row
from benchmarks.support.report import number

HEAD = (
    "LINE", "SLURM OR PEER", "DLQ", "DLQ IS AHEAD",
    "CPU OF CONTROLLER", "CPU BESIDE IT", "GOAL", "MET",
)  # fmt: skip


def row_text(row: Row) -> str:
    """One row as soon as it is known."""
    name, slurm, dlq, ahead, controller, beside, goal, met = cells(row)
    told = f"{name}: dlq {dlq}, {row.peer} {slurm}: {ahead}" if row.slurm else f"{name}: {dlq}"
    if ahead and not row.slurm:
        told += f": {ahead}"
    cpu = f"; CPU of the controllers {controller}, beside them {beside}" if controller else ""
    return f"{told}{cpu}" + (f"  (goal {goal}: {met})" if goal else "")


def cells(row: Row) -> tuple[str, ...]:
    """The cells of a row. CPU is in milliseconds for each operation, Slurm's first."""
    return (
        row.name,
        f"{number(Row.middle(row.slurm, 'value'))} {row.unit}" if row.slurm else "-",
        f"{number(Row.middle(row.dlq, 'value'))} {row.unit}",
        _ahead(row),
        _cpu(row, "controller_ms"),
        _cpu(row, "beside_ms"),
        row.goals.words(row.unit),
        row.verdict(),
    )


def _ahead(row: Row) -> str:
    found = row.ratio
    if found is not None:
        return found.words()
    values = [turn.value for turn in row.dlq]
    if not row.slurm and len(values) > 1:
        return f"alone, {len(values)} times: {number(min(values))} to {number(max(values))}"
    return row.refusal


def _cpu(row: Row, what: str) -> str:
    if row.steady or not row.with_cpu:
        return ""
    sides = [turns for turns in (row.slurm, row.dlq) if turns]
    return " : ".join(f"{Row.middle(turns, what):.2f}" for turns in sides) + " ms"


def text_table(rows: Sequence[Row]) -> str:
    """All rows for people at a terminal."""
    lines = [HEAD, *(cells(row) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(HEAD))]
    return "".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        + "\n"
        for line in lines
    )


def markdown_table(rows: Sequence[Row]) -> str:
    """All rows for a page."""
    head = [cell.capitalize().replace("Dlq", "dlq").replace("Cpu", "CPU") for cell in HEAD]
    lines = [head, ["---"] * len(HEAD), *(cells(row) for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
