"""The results of a benchmark: figures beside their goals, under conditions; as text, or as one JSON
object.

    report = Report.begin("live.submits", parser)   # adds --json, parses, tells the conditions
    report.figure("submits, 64 in flight", 1234.0, "/s", at_least=900)
    report.end()

Text goes to stdout at once. With --json stdout carries one object at the end, and the text goes to
stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from benchmarks.support.conditions import conditions, conditions_line, fsyncs_per_s

SCHEMA = "dlq.bench.v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number, its unit, and the goal it is held against, if it has one."""

    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None without a goal."""
        if self.at_most is not None:
            return self.value <= self.at_most
        if self.at_least is not None:
            return self.value >= self.at_least
        return None

    @property
    def goal(self) -> str:
        """`<= 20 us`; empty without a goal."""
        if self.at_most is not None:
            return f"<= {self.at_most:,g} {self.unit}"
        if self.at_least is not None:
            return f">= {self.at_least:,g} {self.unit}"
        return ""

    def line(self) -> str:
        """The figure for people, with its goal beside it."""
        verdict = {True: "met", False: "NOT MET", None: ""}[self.met]
        goal = f"  (goal {self.goal}: {verdict})" if self.goal else ""
        note = f"  {self.note}" if self.note else ""
        return f"{self.name}: {number(self.value)} {self.unit}{goal}{note}"

    def facts(self) -> dict[str, Any]:
        """The figure as plain values."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "goal": self.goal or None,
            "met": self.met,
            "note": self.note or None,
        }


@dataclass(slots=True)
class Report:
    """The figures of one benchmark."""

    name: str
    options: argparse.Namespace
    conditions: dict[str, Any]
    figures: list[Figure] = field(default_factory=list)
    details: dict[str, Any] = field(
        default_factory=dict
    )  # beside the figures, in the document only

    @classmethod
    def begin(
        cls, name: str, parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None
    ) -> Self:
        """Parse the options of a benchmark, --json among them, and tell the conditions."""
        parser.add_argument(
            "--json", action="store_true", help="one JSON object on stdout, text on stderr"
        )
        report = cls(name, parser.parse_args(arguments), conditions())
        report.say(conditions_line(report.conditions))
        return report

    def say(self, text: str) -> None:
        """A line for people that is no figure."""
        print(text, file=sys.stderr if self.options.json else sys.stdout, flush=True)

    def disk(self, directory: Path) -> float:
        """Measure and tell how often the disk under `directory` syncs right now."""
        rate = fsyncs_per_s(directory)
        self.figure("disk: appends of 512 B with fdatasync, one after another", rate, "/s")
        return rate

    def figure(
        self,
        name: str,
        value: float,
        unit: str,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
        note: str = "",
    ) -> None:
        """Add and tell a figure; at most one of the two goals."""
        found = Figure(
            name=name, value=value, unit=unit, at_most=at_most, at_least=at_least, note=note
        )
        self.figures.append(found)
        self.say(found.line())

    def end(self) -> None:
        """With --json: the one object."""
        if self.options.json:
            print(json.dumps(self.document()), flush=True)

    def document(self) -> dict[str, Any]:
        """The whole report as plain values."""
        return {
            "schema": SCHEMA,
            "benchmark": self.name,
            "conditions": self.conditions,
            "figures": [figure.facts() for figure in self.figures],
            **({"details": self.details} if self.details else {}),
        }


def number(value: float) -> str:
    """Three digits that matter, and no exponent."""
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 0.1 else f"{value:.4f}"


def summary(reports: Iterable[Mapping[str, Any]]) -> str:
    """One table of figures with a goal: benchmark, figure, value, goal, met."""
    rows = [("BENCHMARK", "FIGURE", "VALUE", "GOAL", "MET")]
    for report in reports:
        rows += [
            (
                report["benchmark"],
                figure["name"],
                f"{number(figure['value'])} {figure['unit']}",
                figure["goal"],
                "yes" if figure["met"] else "NO",
            )
            for figure in report["figures"]
            if figure["goal"]
        ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "".join(
        "  ".join(
            f"{text:<{width}}" for text, width in zip(row, (*widths, 0), strict=True)
        ).rstrip()
        + "\n"
        for row in rows
    )
