"""Draws the pictures as SVG with matplotlib; the same numbers give the same bytes."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from dlq_simulator.errors import UsageError
from dlq_simulator.plots.series import busy_gpus, cdf, cut_note, gantt
from dlq_simulator.results.report import Result
from dlq_simulator.world.clusters import ClusterSpec

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = (8.0, 4.5)  # inches
_HOUR_S = 3600.0


class Drawn(NamedTuple):
    """File name to SVG, and remarks about the pictures."""

    svg: Mapping[str, str]
    notes: Sequence[str]


def pictures(results: Sequence[Result], cluster: ClusterSpec) -> Drawn:
    """Pictures: CDFs of completion and queueing, use over time, a Gantt chart each policy;
    bars of missed deadlines and of cost where the replay has them. UsageError without matplotlib.
    """
    drawn = {
        "jct-cdf.svg": _picture(partial(_cdf, results, "jct")),
        "queue-cdf.svg": _picture(partial(_cdf, results, "queue")),
        "utilization.svg": _picture(partial(_use, results, cluster.gpus)),
    }
    notes = []
    for result in results:
        name = f"gantt.{result.policy}.svg"
        drawn[name] = _picture(partial(_gantt, result, cluster.gpus))
        if note := cut_note(result.policy, result.outcomes):
            notes.append(note)
    for name in ("wdmr", "cost"):
        values = {result.policy: getattr(result.metrics, name) for result in results}
        known = {policy: value for policy, value in values.items() if value is not None}
        if known:
            drawn[f"{name}.svg"] = _picture(partial(_bars, known, name))
    return Drawn(drawn, notes)


def _picture(paint: Callable[[Axes], None]) -> str:
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        why = "matplotlib is not installed"
        raise UsageError("cannot draw pictures", why, "pip install 'dlq[sim]'") from error
    # Names of SVG elements are made from this salt instead of by chance.
    with rc_context({"svg.hashsalt": "dlq", "svg.fonttype": "none"}):
        figure = Figure(figsize=_SIZE, layout="constrained")
        paint(figure.add_subplot())
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def _cdf(results: Sequence[Result], what: str, axes: Axes) -> None:
    for result in results:
        series = cdf([o.jct_s if what == "jct" else o.queue_s for o in result.outcomes])
        axes.plot(series.x, series.y, drawstyle="steps-post", label=result.policy)
    axes.set_xscale("symlog", linthresh=60)
    axes.set_xlim(left=0)
    axes.set(
        xlabel=f"{'job completion time' if what == 'jct' else 'time without GPUs'} (s)",
        ylabel="share of jobs",
        ylim=(0, 1),
    )
    axes.legend()


def _use(results: Sequence[Result], gpus: int, axes: Axes) -> None:
    for result in results:
        series = busy_gpus(result.outcomes)
        hours = [at_s / _HOUR_S for at_s in series.x]
        shares = [100 * busy / gpus for busy in series.y]
        axes.plot(hours, shares, drawstyle="steps-post", label=result.policy, linewidth=0.8)
    axes.set(xlabel="time (h)", ylabel="GPUs held (%)", ylim=(0, 105))
    axes.legend()


def _gantt(result: Result, gpus: int, axes: Axes) -> None:
    from matplotlib import colormaps

    colours = colormaps["tab20"]
    for bar in gantt(result.outcomes, gpus):
        axes.broken_barh(
            [(bar.begin_s / _HOUR_S, (bar.end_s - bar.begin_s) / _HOUR_S)],
            (bar.lane, bar.gpus),
            facecolors=colours(bar.job % 20),
        )
    axes.set(xlabel="time (h)", ylabel="GPUs", ylim=(0, gpus), title=result.policy)


def _bars(values: Mapping[str, float], name: str, axes: Axes) -> None:
    axes.bar(list(values), list(values.values()))
    axes.set(ylabel={"wdmr": "weighted deadline miss rate"}.get(name, name))
