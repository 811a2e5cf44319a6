"""The page of the curves in the documentation: tables with commit, date and conditions; plots."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import ROOT
from benchmarks.growth.curves import Curve, markdown_tables
from benchmarks.support.conditions import commit_name, conditions_line
from benchmarks.support.drawing import Plot, draw

FOLDER = ROOT / "docs" / "internals"
HEAD = """\
<!-- Generated from the code by benchmarks/growth/page.py; do not edit. -->

# How costs grow

Measured by `python -m benchmarks.growth` at commit {commit} on {day}. Conditions: {conditions}.

Each figure is the median CPU time of one turn of the master's core in microseconds, without the
store. Every node is full, and three users have jobs that wait. *slope* is that of the curve on
logarithmic axes: 0 does not grow, 1 doubles with the size. `page` is one of a list, with 50 jobs
that were not encoded before. `why` is the first question after a change. `leases` is the look at
all nodes once a second. A restart loads everything from rows in memory. Tests count the calls of
each operation, and fail when a curve bends (`tests/unit/benchmarks/test_growth_counted.py`).

"""
PICTURE = "growth.svg"


def write_page(conditions: Mapping[str, Any], curves: Sequence[Curve]) -> None:
    """Write it, and the picture if matplotlib is there."""
    text = page_text(conditions, curves, commit_name(), time.strftime("%Y-%m-%d"))
    if draw(FOLDER / PICTURE, _plots(curves)):
        text += f"\n![Cost over size]({PICTURE})\n"
    (FOLDER / "growth.md").write_text(text)


def page_text(conditions: Mapping[str, Any], curves: Sequence[Curve], commit: str, day: str) -> str:
    """Its text."""
    told = conditions_line(dict(conditions)).removeprefix("conditions: ")
    return HEAD.format(commit=commit, day=day, conditions=told) + markdown_tables(curves)


def _plots(curves: Sequence[Curve]) -> list[Plot]:
    """A plot for each measure of size, on logarithmic axes."""
    return [
        Plot(
            over,
            "CPU us",
            {
                f"{curve.operation}, {curve.policy}": [(at.size, at.cost_us) for at in curve.points]
                for curve in curves
                if curve.over == over
            },
            logs="xy",
        )
        for over in dict.fromkeys(curve.over for curve in curves)
    ]
