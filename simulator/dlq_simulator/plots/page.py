"""One HTML file that compares policies. It looks as the pages of `dlq web` do, and stands alone.

Its style is inside and named by its hash, so that its content policy forbids everything else.
There is no script. Each chart has its numbers in a table below.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape
from importlib.resources import files

from dlq_common.text.units import format_duration
from dlq_simulator.metrics import NOISE_S, Number, ReplayOutcome
from dlq_simulator.plots.charts import (
    cdf_chart,
    lanes_chart,
    legend,
    stacked_chart,
    use_chart,
)
from dlq_simulator.plots.series import busy_shares, cdf, cut_note, gantt
from dlq_simulator.results.report import Result
from dlq_simulator.workload import Trace
from dlq_simulator.world.clusters import ClusterSpec

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
_COLUMNS = 600  # of the chart of use
_PARTS = 12  # rows of its table
_BARS = {"wdmr": "Weighted deadline miss rate", "cost": "Cost"}
_PROMISES = ("kept", "missed", "not promised")


def page(
    trace: Trace,
    cluster: ClusterSpec,
    results: Sequence[Result],
    *,
    seed: int,
    settings: Sequence[str],
) -> str:
    """The whole file; a metric that no policy has is left out."""
    title = f"{trace.path} on {cluster.name}"
    notes = [note for result in results if (note := cut_note(result.policy, result.outcomes))]
    told = "; ".join([f"seed {seed}", *settings, *trace.notes, *notes])
    style = files("dlq_common.page").joinpath("static/look.css").read_text(encoding="utf-8")
    names = legend(result.policy for result in results)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(style)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style></head>\n"
        f"<body><main><h1>{escape(title)}</h1>\n"
        f"<p>{len(trace.jobs)} jobs, {cluster.nodes} nodes, {cluster.gpus} GPUs; "
        f"{escape(told)}</p>\n"
        f"<h2>Policies side by side</h2>\n{_metrics(results)}\n"
        f"{_times(results, 'jct', 'From submission to the end', names)}\n"
        f"{_times(results, 'queue', 'Waiting without GPUs', names)}\n"
        f"{_use(results, cluster.gpus, names)}\n{_promises(results)}\n{_bars(results)}\n"
        f"{_lanes(results, cluster.gpus)}</main></body></html>\n"
    )


def _policy(style: str) -> str:
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _metrics(results: Sequence[Result]) -> str:
    rows = {result.policy: asdict(result.metrics) for result in results}
    names = next(iter(rows.values()))
    told = [name for name in names if any(row[name] is not None for row in rows.values())]
    return _table(
        "Metrics",
        ["", *rows],
        [[name, *(_text(row[name]) for row in rows.values())] for name in told],
    )


def _times(results: Sequence[Result], what: str, title: str, names: str) -> str:
    """How long jobs took, as a distribution."""
    values = {result.policy: _seconds(result.outcomes, what) for result in results}
    series = {policy: cdf(found) for policy, found in values.items()}
    if not any(found.x for found in series.values()):
        return ""
    rows = [
        ["longest" if share == 1.0 else f"{share:.0%} within", *_shares_of(series, share)]
        for share in SHARES
    ]
    chart = cdf_chart(f"{title}: share of jobs over time", series)
    return _figure(title, chart + names, _table(title, ["share of jobs", *series], rows))


def _seconds(outcomes: Sequence[ReplayOutcome], what: str) -> list[Number]:
    return [one.jct_s if what == "jct" else one.queue_s for one in outcomes]


def _shares_of(series: Mapping[str, tuple[list[float], list[float]]], share: float) -> list[str]:
    found = []
    for x, _ in series.values():
        place = max(0, math.ceil(share * len(x) - 1e-9) - 1)
        found.append(format_duration(x[place]) if x else "-")
    return found


def _use(results: Sequence[Result], gpus: int, names: str) -> str:
    spans = [span for one in results for o in one.outcomes for span in o.spans]
    if not spans or not gpus:
        return ""
    begin_s, end_s = min(one.begin_s for one in spans), max(one.end_s for one in spans)
    fine = {
        one.policy: busy_shares(one.outcomes, gpus, begin_s, end_s, _COLUMNS) for one in results
    }
    coarse = [busy_shares(one.outcomes, gpus, begin_s, end_s, _PARTS) for one in results]
    part_s = (end_s - begin_s) / _PARTS
    rows = [
        [f"until {format_duration((part + 1) * part_s)}", *(f"{one[part]:.1%}" for one in coarse)]
        for part in range(_PARTS)
    ]
    chart = use_chart("GPUs held over time", fine, end_s - begin_s)
    return _figure("GPUs held over time", chart + names, _table("GPUs held", ["", *fine], rows))


def _promises(results: Sequence[Result]) -> str:
    """Deadlines that were promised, and what came of it; nothing where no job has one."""
    counts = {result.policy: _promise_counts(result.outcomes) for result in results}
    if not any(sum(count.values()) for count in counts.values()):
        return ""
    rows = [[name, *(str(count[name]) for count in counts.values())] for name in _PROMISES]
    chart = stacked_chart("Promises by policy", counts) + legend(_PROMISES)
    return _figure("Promises", chart, _table("Promises", ["jobs with deadlines", *counts], rows))


def _promise_counts(outcomes: Sequence[ReplayOutcome]) -> dict[str, int]:
    counts = dict.fromkeys(_PROMISES, 0)
    for one in outcomes:
        if one.job.kind == "be":
            continue
        if one.promised_s is None:
            counts["not promised"] += 1
        else:
            counts["kept" if one.jct_s <= one.promised_s + NOISE_S else "missed"] += 1
    return counts


def _bars(results: Sequence[Result]) -> str:
    """Their numbers are in the table of metrics."""
    drawn = ""
    for name, title in _BARS.items():
        values = {result.policy: getattr(result.metrics, name) for result in results}
        known = {policy: {title: value} for policy, value in values.items() if value is not None}
        if known:
            drawn += _figure(title, stacked_chart(title, known), "")
    return drawn


def _lanes(results: Sequence[Result], gpus: int) -> str:
    drawn = ""
    for result in results:
        title = f"GPUs of attempts over time, {result.policy}"
        drawn += _figure(title, lanes_chart(title, gantt(result.outcomes, gpus), gpus), "")
    return drawn


def _figure(title: str, chart: str, table: str) -> str:
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>{chart}</figure>\n"
        + (f"<details><summary>In numbers</summary>{table}</details>\n" if table else "")
    )  # fmt: skip


def _table(name: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(
        f'<th scope="col"{_RIGHT if place else ""}>{escape(text)}</th>'
        for place, text in enumerate(heads)
    )
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td{_RIGHT}>{escape(text)}</td>" for text in row[1:])
        + "</tr>\n"
        for row in rows
    )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{escape(name)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>"
    )


_RIGHT = ' class="n"'


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {found:,.1f}" for name, found in value.items()) or "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"
