"""As much of the next hours as a screen can show: one rectangle for a lane, a kind and a pixel.

A picture of any cluster therefore has a bounded size. Bars that begin in the same pixel are one bar
with a count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from dlq_web.pages.foresee.hours import MOST_LANES, RUNS, FutureBar, FutureLane

MOST_WORDS = 60  # characters of a bar's words


class FutureView(NamedTuple):
    """The part of time that a screen shows."""

    from_s: float
    span_s: float
    pixels: int

    @property
    def pixel_s(self) -> float:
        """The time that one pixel is wide."""
        return self.span_s / self.pixels

    def pixel(self, at_s: float) -> int:
        """The pixel of an instant, within the screen."""
        place = int((at_s - self.from_s) // self.pixel_s)
        return max(0, min(place, self.pixels))


def seen_lanes(lanes: Iterable[FutureLane], view: FutureView) -> list[FutureLane]:
    """Lanes with something to show in this part of time, each thinned out."""
    shown = [FutureLane(lane.name, thinned(lane.bars, view)) for lane in lanes]
    return [lane for lane in shown if lane.bars]


def thinned(bars: Sequence[FutureBar], view: FutureView) -> list[FutureBar]:
    """At most one bar of a kind that begins in the same pixel; none outside of the view."""
    until_s = view.from_s + view.span_s
    kept: dict[tuple[str, int], FutureBar] = {}
    for bar in sorted(bars, key=lambda one: one.begin_s):
        begins_s = min(bar.begin_s, bar.early_s or bar.begin_s)
        if bar.end_s <= view.from_s or begins_s >= until_s:
            continue
        at = (bar.kind, view.pixel(bar.begin_s))
        kept[at] = _both(kept[at], bar) if at in kept else bar
    return list(kept.values())


def _both(one: FutureBar, other: FutureBar) -> FutureBar:
    many = one.merged + other.merged
    return one._replace(
        end_s=max(one.end_s, other.end_s), early_s=max(one.early_s, other.early_s)
        if one.kind == RUNS else min(one.early_s, other.early_s),
        late_s=max(one.late_s, other.late_s),
        words=f"{many} jobs", job_id="", merged=many,
    )  # fmt: skip


def picture(lanes: Sequence[FutureLane], view: FutureView, now_s: float) -> dict[str, Any]:
    """The document for the canvas. A bar: lane, kind, begin, end, earliest and latest start in
    pixels from the left edge, words, job. A run is sure until its earliest instant.
    """
    shown = lanes[:MOST_LANES]
    return {
        "from": round(view.from_s),
        "span": round(view.span_s),
        "pixels": view.pixels,
        "now": view.pixel(now_s),
        "lanes": [lane.name[:MOST_WORDS] for lane in shown],
        "left_out": len(lanes) - len(shown),
        "bars": [
            _told(number, bar, view) for number, lane in enumerate(shown) for bar in lane.bars
        ],
    }


def _told(lane: int, bar: FutureBar, view: FutureView) -> list[Any]:
    edges = [view.pixel(at_s) for at_s in (bar.begin_s, bar.end_s)]
    fuzzy = [view.pixel(at_s) if at_s else edges[0] for at_s in (bar.early_s, bar.late_s)]
    return [lane, bar.kind, *edges, *fuzzy, bar.words[:MOST_WORDS], bar.job_id]
