"""Charts of the report as SVG of our own: lines, stacked bars and lanes, without a drawing library.

They have classes and no colours, which are those of the shared style sheet. Each line has its own
dashes too, for eyes that do not tell the colours apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Final

from dlq_simulator.plots.series import Bar, Series

WIDTH, HEIGHT = 720, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 10, 8, 30
_PLOT_W, _PLOT_H = WIDTH - _LEFT - _RIGHT, HEIGHT - _TOP - _BOTTOM
COLOURS: Final = 6
_DASHES: Final = ("", "6 3", "2 2", "9 3 2 3", "1 3", "12 4")
_LINEAR_S: Final = 60.0  # below a minute the axis of times is linear
_TIMES: Final = ((60, "1m"), (600, "10m"), (3600, "1h"), (36_000, "10h"), (360_000, "100h"),
                 (3_600_000, "1000h"))  # fmt: skip
_LANES = 240  # the height of a chart of lanes

Tick = tuple[float, str]  # its place in the plot from 0 to 1, and its label


def cdf_chart(title: str, lines: Mapping[str, Series]) -> str:
    """The share of jobs at or below each time, on an axis of times that grows by tens."""
    longest_s = max((series.x[-1] for series in lines.values() if series.x), default=1.0)
    reach = _grown(max(longest_s, _LINEAR_S))
    ticks = [(0.0, "0"), *((_grown(at) / reach, name) for at, name in _TIMES if at <= longest_s)]
    paths = {
        name: _steps(series.x, series.y, lambda at_s: _grown(at_s) / reach)
        for name, series in lines.items()
    }
    return _lines(title, paths, ticks)


def use_chart(title: str, lines: Mapping[str, Sequence[float]], span_s: float) -> str:
    """Shares of 1 over time, each for an equal part of the span."""
    paths = {
        name: [(place / len(shares), share) for place, share in enumerate(shares)]
        + [(1.0, shares[-1])]
        for name, shares in lines.items()
        if shares
    }
    ticks = [(part / 4, f"{span_s * part / 4 / 3600:.0f}h") for part in range(5)]
    return _lines(title, paths, ticks)


def stacked_chart(title: str, bars: Mapping[str, Mapping[str, float]]) -> str:
    """One bar for each name, of its parts; the parts have the same order and colours in each."""
    most = max((sum(parts.values()) for parts in bars.values()), default=0.0) or 1.0
    row, height = 26, 26 * len(bars) + 6
    body = []
    for place, (name, parts) in enumerate(bars.items()):
        left, top = 160.0, 4 + row * place
        body.append(f'<text x="0" y="{top + 14}">{escape(name[:24])}</text>')
        for number, (part, value) in enumerate(parts.items()):
            width = (WIDTH - 170) * value / most
            told = f"<title>{escape(f'{name}, {part}: {value:g}')}</title>"
            body.append(
                f'<rect class="s{number % COLOURS}" x="{left:.1f}" y="{top}" width="{width:.1f}" '
                f'height="18">{told}</rect>'
            )
            left += width
    return _svg(title, height, "".join(body))


def lanes_chart(title: str, bars: Sequence[Bar], gpus: int) -> str:
    """Attempts in lanes, over time; one path for each colour."""
    begin_s = min((bar.begin_s for bar in bars), default=0)
    span_s = max((bar.end_s for bar in bars), default=1) - begin_s or 1
    across, down = _PLOT_W / span_s, _LANES / max(1, gpus)
    paths: dict[int, list[str]] = {}
    for bar in bars:
        left, top = (bar.begin_s - begin_s) * across, bar.lane * down
        width, height = max(0.2, (bar.end_s - bar.begin_s) * across), bar.gpus * down
        piece = f"M{left:.1f} {top:.1f}h{width:.1f}v{height:.1f}h-{width:.1f}z"
        paths.setdefault(bar.job % COLOURS, []).append(piece)
    drawn = "".join(
        f'<path class="s{colour}" d="{"".join(pieces)}"/>'
        for colour, pieces in sorted(paths.items())
    )
    ticks = [(part / 4, f"{span_s * part / 4 / 3600:.0f}h") for part in range(5)]
    return _svg(
        title,
        _LANES + _TOP + _BOTTOM,
        f'<g transform="translate({_LEFT} {_TOP})">{drawn}{_across(ticks, _LANES)}</g>',
    )


def legend(names: Iterable[str]) -> str:
    """The names of lines or parts, in their colours."""
    items = "".join(
        f'<li class="s{place % COLOURS}">{escape(name)}</li>' for place, name in enumerate(names)
    )
    return f'<ul class="legend">{items}</ul>'


# --- helpers, in order of use ---------------------------------------------------------------------


def _grown(at_s: float) -> float:
    """Linear up to a minute, then by the logarithm."""
    return at_s / _LINEAR_S if at_s <= _LINEAR_S else 1.0 + math.log10(at_s / _LINEAR_S)


def _steps(
    x: Sequence[float], y: Sequence[float], place: Callable[[float], float]
) -> list[tuple[float, float]]:
    """The last value at each column of the picture: more cannot be seen."""
    seen: dict[int, tuple[float, float]] = {-1: (0.0, 0.0)}
    for at_s, share in zip(x, y, strict=True):
        at = place(max(0.0, at_s))
        seen[round(at * _PLOT_W)] = (at, share)
    return list(seen.values())


def _lines(
    title: str, paths: Mapping[str, Sequence[tuple[float, float]]], ticks: Sequence[Tick]
) -> str:
    body = _across(ticks, _PLOT_H) + "".join(
        f'<text x="-6" y="{_PLOT_H * (1 - part / 4) + 4:.0f}" text-anchor="end">{25 * part}%</text>'
        for part in range(5)
    )
    for place, (name, points) in enumerate(paths.items()):
        dash = _DASHES[place % len(_DASHES)]
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        body += (
            f'<path class="line s{place % COLOURS}"{dashes} d="{_path(points)}">'
            f"<title>{escape(name)}</title></path>"
        )
    return _svg(title, HEIGHT, f'<g transform="translate({_LEFT} {_TOP})">{body}</g>')


def _path(points: Sequence[tuple[float, float]]) -> str:
    """As steps: a value holds until the next."""
    words: list[str] = []
    for across, share in points:
        x, y = across * _PLOT_W, (1.0 - min(1.0, share)) * _PLOT_H
        words.append(f"H{x:.1f}V{y:.1f}" if words else f"M{x:.1f} {y:.1f}")
    return "".join(words)


def _across(ticks: Sequence[Tick], height: int) -> str:
    grid = "".join(f"M{at * _PLOT_W:.1f} 0v{height}" for at, _ in ticks)
    labels = "".join(
        f'<text x="{at * _PLOT_W:.1f}" y="{height + 16}" text-anchor="middle">{escape(name)}</text>'
        for at, name in ticks
    )
    return f'<path class="grid" d="{grid}"/>{labels}'


def _svg(title: str, height: int, body: str) -> str:
    name = escape(title)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="Chart: {name}">'
        f'<svg class="chart" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{name}">{body}</svg></div>'
    )
