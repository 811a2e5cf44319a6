"""The page of a race in the documentation: the table with commit, date and conditions; plots."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import ROOT
from benchmarks.race.pairs import LOUD, Row
from benchmarks.race.table import markdown_table
from benchmarks.support.conditions import commit_name, conditions_line

FOLDER = ROOT / "docs" / "internals"
HEAD = """\
<!-- Generated from the code by benchmarks/race/page.py; do not edit. -->

# dlq beside Slurm

Measured by `{command}` at commit {commit} on {day}, {repeat} pairs a row.
Conditions: {conditions}.

Both clusters stood side by side on one machine, and took turns. *dlq is ahead* is the geometric
mean of the pairs' ratios, with Student's interval of 95 %. A pair counts if other work took at most
{loud:.0f} % of the cores in both of its turns. CPU is in milliseconds for each operation, Slurm's
first: of the controllers, and of clients, helpers, agents and jobs beside them. Values are medians.
Rows that name HyperQueue have it in Slurm's place.
dlq answers a submit when the job is on disk; Slurm writes it down some seconds later.

"""
PICTURE = "race.svg"


def write_page(
    conditions: Mapping[str, Any], rows: Sequence[Row], repeat: int, short: bool
) -> None:
    """Write it, and the picture if matplotlib is there."""
    text = page_text(conditions, rows, repeat, short, commit_name(), time.strftime("%Y-%m-%d"))
    if _draw(rows):
        text += f"\n![Times ahead of Slurm]({PICTURE})\n"
    (FOLDER / "race.md").write_text(text)


def page_text(
    conditions: Mapping[str, Any],
    rows: Sequence[Row],
    repeat: int,
    short: bool,
    commit: str,
    day: str,
) -> str:
    """Its text."""
    text = HEAD.format(
        command="make race SHORT=1" if short else "make race",
        commit=commit,
        day=day,
        repeat=repeat,
        conditions=conditions_line(dict(conditions)).removeprefix("conditions: "),
        loud=100 * LOUD,
    )
    hows = "".join(f"- {row.name}: {row.how}.\n" for row in rows if row.how)
    return f"{text}{markdown_table(rows)}\n## What each row does\n\n{hows}"


def _draw(rows: Sequence[Row]) -> bool:
    """The ratios with their intervals, on a logarithmic axis."""
    try:
        from matplotlib import rcParams
        from matplotlib.figure import Figure
    except ImportError:
        return False
    found = [(row.name, row.ratio) for row in reversed(rows) if row.ratio is not None]
    if not found:
        return False
    rcParams["svg.hashsalt"] = "dlq"  # the same race draws the same picture
    figure = Figure(figsize=(8, 1 + 0.3 * len(found)), layout="constrained")
    axes = figure.subplots()
    for at, (_, ratio) in enumerate(found):
        low, high = ratio.low or ratio.times, ratio.high or ratio.times
        colour = "tab:green" if low > 1 else "tab:red" if high < 1 else "tab:gray"
        axes.plot([low, high], [at, at], color=colour, linewidth=3)
        axes.plot([ratio.times], [at], "o", color=colour)
    axes.set_yticks(range(len(found)), [name for name, _ in found])
    axes.set_xscale("log")
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_xlabel("times ahead of Slurm")
    figure.savefig(FOLDER / PICTURE, metadata={"Date": None})
    return True
