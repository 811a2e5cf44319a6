"""Curves: the cost of an operation at growing sizes, and how steeply it rises.

A cost that stays the same has a slope of 0, and a cost that doubles with the size one of 1. The
slope is that of the straight line of least squares through the logarithms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple


class Point(NamedTuple):
    """One size, and CPU microseconds at that size."""

    size: int
    cost_us: float


class Curve(NamedTuple):
    """One operation over one measure of size; `most`: the slope that it may have."""

    operation: str
    over: str
    policy: str
    most: float
    points: Sequence[Point]

    @property
    def name(self) -> str:
        """Its name in tables."""
        return f"{self.operation} over {self.over}, {self.policy}"

    @property
    def slope(self) -> float | None:
        """Its steepness; None with fewer than two sizes."""
        return slope(self.points)

    def facts(self) -> dict[str, Any]:
        """The curve as plain values."""
        points = [[point.size, round(point.cost_us, 1)] for point in self.points]
        return {**self._asdict(), "points": points, "slope": self.slope}


def slope(points: Sequence[Point]) -> float | None:
    """The slope of the line through the logarithms; None where there is none."""
    if len({point.size for point in points}) < 2:
        return None
    across = [math.log(point.size) for point in points]
    up = [math.log(max(point.cost_us, 1e-3)) for point in points]
    mid_across, mid_up = sum(across) / len(across), sum(up) / len(up)
    both = sum((x - mid_across) * (y - mid_up) for x, y in zip(across, up, strict=True))
    return both / sum((x - mid_across) ** 2 for x in across)


def text_table(curves: Sequence[Curve]) -> str:
    """A line for each curve: its costs by size, and its slope."""
    lines = []
    for curve in curves:
        costs = "  ".join(f"{point.size:,}: {point.cost_us:,.0f}" for point in curve.points)
        steep = curve.slope
        told = "" if steep is None else f"  slope {steep:+.2f} (at most {curve.most:+.2f})"
        lines.append(f"{curve.name}: {costs} us{told}")
    return "\n".join(lines)


def markdown_tables(curves: Sequence[Curve]) -> str:
    """A table for each measure of size."""
    parts = []
    for over in dict.fromkeys(curve.over for curve in curves):
        here = [curve for curve in curves if curve.over == over]
        sizes = sorted({point.size for curve in here for point in curve.points})
        rows = [f"| operation, policy | {' | '.join(f'{size:,}' for size in sizes)} | slope |"]
        rows.append("|---" * (len(sizes) + 2) + "|")
        for curve in here:
            costs = {point.size: f"{point.cost_us:,.0f}" for point in curve.points}
            steep = curve.slope
            cells = [costs.get(size, "") for size in sizes]
            cells.append("" if steep is None else f"{steep:+.2f}")
            rows.append(f"| {curve.operation}, {curve.policy} | {' | '.join(cells)} |")
        parts.append(f"## Over {over}\n\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)
