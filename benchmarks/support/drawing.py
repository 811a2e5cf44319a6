"""Draws lines as SVG with matplotlib, side by side; the same numbers give the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

Points = Sequence[tuple[float, float]]
_INCHES = 4


class Plot(NamedTuple):
    """Lines over one axis, by their names."""

    x: str
    y: str
    lines: Mapping[str, Points]
    log: bool = False  # both axes


def draw(file: Path, plots: Sequence[Plot]) -> bool:
    """Write the picture; False where matplotlib is not installed."""
    try:
        from matplotlib import rcParams
        from matplotlib.figure import Figure
    except ImportError:
        return False
    rcParams["svg.hashsalt"] = "dlq"  # the same curves draw the same picture
    figure = Figure(figsize=(_INCHES * len(plots), _INCHES), layout="constrained")
    places = figure.subplots(1, len(plots), squeeze=False)[0]
    for place, plot in zip(places, plots, strict=True):
        paint = place.loglog if plot.log else place.plot
        for label, points in plot.lines.items():
            paint([x for x, _ in points], [y for _, y in points], "o-", label=label)
        place.set_xlabel(plot.x)
        place.set_ylabel(plot.y)
        place.legend(fontsize="small")
    figure.savefig(file, metadata={"Date": None})
    return True
