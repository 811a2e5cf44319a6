"""Draws lines as SVG with matplotlib, side by side; the same numbers give the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = Sequence[tuple[float, float]]
_NONE: Mapping[str, Points] = MappingProxyType({})
_INCHES = 4
_NARROWEST = 6
_LETTERS = 11  # of the legend, to the inch
_KEY = 5  # letters that a line and its gap take there
_CROWDED = 8  # names of places that stand aslant
_ALIKE, _ROOM = 0.8, 1.05
_FEW = 12  # places, each of which is named
_MARKS = "osv^D"
_STYLE: dict[Any, Any] = {
    "svg.hashsalt": "dlq",  # the same curves draw the same picture
    "svg.fonttype": "none",
    "font.size": 9,
}


class Plot(NamedTuple):
    """Lines over one axis, by their names. `x` and `y` say what they are, with their units.

    `printed`: points that a paper prints, as black crosses. `ticks`: names of the places 0, 1 and
    so on along x, between which there is nothing: points have no lines then.
    """

    x: str
    y: str
    lines: Mapping[str, Points]
    logs: str = ""  # axes that are logarithmic: x, y or xy
    printed: Mapping[str, Points] = _NONE
    ticks: Sequence[str] = ()
    steps: bool = False  # a line stays level up to its next point, and has no marks
    title: str = ""


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def draw(file: Path, plots: Sequence[Plot]) -> bool:
    """Write the picture; False where matplotlib is not installed."""
    if not can_draw():
        return False
    from matplotlib import colormaps, rc_context
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(name for plot in plots for name in plot.lines))
    colours = colormaps["tab10" if len(names) <= 10 else "tab20"]
    looks = {name: (colours(at), _MARKS[at % len(_MARKS)]) for at, name in enumerate(names)}
    with rc_context(_STYLE):
        width = max(_NARROWEST, _INCHES * len(plots))
        many = any(len(plot.ticks) > _CROWDED for plot in plots)
        height = _INCHES * (1.5 if many else 1)  # names that stand upright take some
        figure = Figure(figsize=(width, height), layout="constrained")
        places = figure.subplots(1, len(plots), squeeze=False)[0]
        shown: dict[str, Any] = {}
        for place, plot in zip(places, plots, strict=True):
            _paint(place, plot, looks)
            handles, labels = place.get_legend_handles_labels()
            shown.update(zip(labels, handles, strict=True))
        longest = max(map(len, shown), default=0) + _KEY
        columns = max(1, int(width * _LETTERS / longest))
        figure.legend([*shown.values()], [*shown], loc="outside lower center", ncols=columns)
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return True


def _paint(place: Axes, plot: Plot, looks: Mapping[str, tuple[tuple[float, ...], str]]) -> None:
    for label, points in plot.lines.items():
        colour, mark = looks[label]
        style = "steps-post" if plot.steps else "default"
        place.plot(
            [x for x, _ in points],
            [y for _, y in points],
            marker="" if plot.steps else mark,
            linestyle="" if plot.ticks else "-",
            drawstyle=style,
            color=colour,
            label=label,
        )
    for label, points in plot.printed.items():
        place.plot([x for x, _ in points], [y for _, y in points], "kx", label=label, zorder=3)
    if "x" in plot.logs:
        place.set_xscale("log")
    if "y" in plot.logs:
        place.set_yscale("log")
    _name_places(place, plot)
    place.set_title(plot.title)
    place.set_xlabel(plot.x)
    place.set_ylabel(plot.y)
    place.grid(alpha=0.3)


def _name_places(place: Axes, plot: Plot) -> None:
    """Few places are named one by one. A linear axis of values begins at nought, unless all are
    alike.
    """
    points = [point for line in (*plot.lines.values(), *plot.printed.values()) for point in line]
    places = sorted({x for x, _ in points})
    if plot.ticks:
        turned = 90 if len(plot.ticks) > _CROWDED else 30
        place.set_xticks(range(len(plot.ticks)), plot.ticks, rotation=turned, ha="right")
    elif not plot.steps and len(places) <= _FEW:
        place.set_xticks(places, [f"{x:g}" for x in places])
        place.minorticks_off()
    values = [y for _, y in points]
    if values and "y" not in plot.logs and 0 <= min(values) < _ALIKE * max(values):
        place.set_ylim(0, _ROOM * max(values))
