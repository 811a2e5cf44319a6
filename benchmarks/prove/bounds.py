"""Bounds of the figures of campaigns, and their judge.

A campaign that ends well has lost nothing; its tests say so. Its bounds judge the figures that it
told: seconds, counts and sizes. A bound that is missed makes the campaign fail, and the page says
so. A figure that nobody told is not taken for good.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import combinations
from statistics import median
from typing import Any, NamedTuple

from benchmarks.support.report import number

Measure = Callable[[Sequence[float]], float]


class Standing(StrEnum):
    """How a figure stands to its bound, in the words of the page."""

    MET = "met"
    MISSED = "NOT MET"
    UNKNOWN = "not measured"
    TOO_SMALL = "full form only"


@dataclass(frozen=True, slots=True)
class Bound:
    """One figure that must not be above or below a limit.

    The limit is a number, or the name of another figure of the same row.
    """

    words: str
    figure: str  # its name; * stands for any letters
    source: str  # the goal that it comes from
    at_most: float | str | None = None
    at_least: float | str | None = None
    unit: str = ""
    row: Mapping[str, str] = field(default_factory=dict)  # words that its row must have
    full: bool = False  # a short form is too small for it
    measure: Measure | None = None  # of all values of a list; None: each of them is judged
    reason: str = ""  # why a machine of two shared cores may miss it, as one sentence

    @property
    def limit(self) -> str:
        """`<= 5 s`."""
        sign, limit = ("<=", self.at_most) if self.at_most is not None else (">=", self.at_least)
        told = limit.replace("_", " ") if isinstance(limit, str) else number(limit or 0)
        return f"{sign} {told} {self.unit}".strip()


class Verdict(NamedTuple):
    """A bound beside what was found; `worst` is empty where nothing was."""

    bound: Bound
    standing: Standing
    worst: str

    @property
    def missed(self) -> bool:
        """Whether the campaign has failed by it."""
        return self.standing in (Standing.MISSED, Standing.UNKNOWN)

    def __str__(self) -> str:
        found = f"{self.worst}, " if self.worst else ""
        return (
            f"{self.bound.words} {self.bound.limit} ({self.bound.source}): {found}{self.standing}"
        )


def judged(
    bounds: Iterable[Bound], found: Sequence[Mapping[str, Any]], *, full: bool
) -> list[Verdict]:
    """Every bound with its verdict. `full`: the figures are those of a whole full form."""
    rows = [*_rows(found)]
    return [_verdict(bound, rows, full=full) for bound in bounds]


def numbers(value: object) -> list[float]:
    """All numbers of a figure: of a list, or of a range of parts such as `3 to 1,200`. A list of
    names, or an empty one, is as much as it is long.
    """
    if isinstance(value, int | float):
        return [float(value)]
    if isinstance(value, list):
        found = [each for one in value for each in numbers(one)]
        return found or [float(len(value))]
    words = str(value).split(" to ")
    if all(re.fullmatch(r"-?[\d,]+(\.\d+)?", word) for word in words):
        return [float(word.replace(",", "")) for word in words]
    return []


def growth_percent(sizes: Sequence[float]) -> float:
    """By how much the last half of the sizes rises, in percent of its level: the middle slope
    between any two of them, over all. A new process rises to its level first, and one size that
    happens to be large is no growth.
    """
    last = sizes[len(sizes) // 2 :]
    pairs = combinations(enumerate(last), 2)
    slopes = [(after - before) / (to - at) for (at, before), (to, after) in pairs]
    return 100.0 * median(slopes or [0.0]) * (len(last) - 1) / median(last)


def _rows(found: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """A benchmark's report as a row, too."""
    for one in found:
        if "figures" in one:
            yield {
                "campaign": one["benchmark"],
                **{each["name"]: each["value"] for each in one["figures"]},
            }
        else:
            yield one


def _verdict(bound: Bound, rows: Sequence[Mapping[str, Any]], *, full: bool) -> Verdict:
    told = [
        (value, _limit(bound, row))
        for row in rows
        if all(row.get(name) == word for name, word in bound.row.items())
        for name, figure in row.items()
        if fnmatchcase(name, bound.figure)
        for value in _values(bound, figure)
    ]
    if bound.full and not full:
        return Verdict(bound, Standing.TOO_SMALL, _worst(bound, told))
    if not told or any(limit is None for _, limit in told):
        return Verdict(bound, Standing.UNKNOWN, "")
    upper = bound.at_most is not None
    met = all(
        value <= limit if upper else value >= limit for value, limit in told if limit is not None
    )
    return Verdict(bound, Standing.MET if met else Standing.MISSED, _worst(bound, told))


def _values(bound: Bound, figure: object) -> list[float]:
    found = numbers(figure)
    return [bound.measure(found)] if bound.measure and found else found


def _limit(bound: Bound, row: Mapping[str, Any]) -> float | None:
    limit = bound.at_most if bound.at_most is not None else bound.at_least
    if isinstance(limit, str):
        return max(numbers(row.get(limit)), default=None)
    return limit


def _worst(bound: Bound, told: Sequence[tuple[float, float | None]]) -> str:
    if not told:
        return ""
    values = [value for value, _ in told]
    worst = max(values) if bound.at_most is not None else min(values)
    return f"{number(worst)} {bound.unit}".strip()
