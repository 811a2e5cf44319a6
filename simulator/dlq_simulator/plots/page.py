"""One HTML file that compares policies: the table and the pictures, nothing fetched from
outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from html import escape

from dlq_simulator.plots.draw import Drawn
from dlq_simulator.results.report import Result
from dlq_simulator.workload import Trace
from dlq_simulator.world.clusters import ClusterSpec

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 64rem; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .75rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 2rem 0; } svg { max-width: 100%; height: auto; }
"""  # noqa: E501


def page(
    trace: Trace,
    cluster: ClusterSpec,
    results: Sequence[Result],
    drawn: Drawn,
    *,
    seed: int,
    settings: Sequence[str],
) -> str:
    """The whole file; a metric that no policy has is left out."""
    title = f"{trace.path} on {cluster.name}"
    told = "; ".join([f"seed {seed}", *settings, *trace.notes, *drawn.notes])
    figures = "".join(
        f"<figure><figcaption>{escape(name)}</figcaption>{_embedded(svg)}</figure>\n"
        for name, svg in drawn.svg.items()
    )
    return (
        f"<!doctype html>\n<html lang=en><meta charset=utf-8><title>{escape(title)}</title>\n"
        f"<style>{_STYLE}</style>\n<h1>{escape(title)}</h1>\n"
        f"<p>{len(trace.jobs)} jobs, {cluster.nodes} nodes, {cluster.gpus} GPUs; "
        f"{escape(told)}</p>\n"
        f"{_table(results)}\n{figures}</html>\n"
    )


def _table(results: Sequence[Result]) -> str:
    rows = {result.policy: asdict(result.metrics) for result in results}
    names = next(iter(rows.values()))
    told = [name for name in names if any(row[name] is not None for row in rows.values())]
    head = "".join(f"<th>{escape(policy)}" for policy in rows)
    body = "".join(
        f"<tr><td>{escape(name)}" + "".join(f"<td>{_text(row[name])}" for row in rows.values())
        for name in told
    )
    return f"<table><tr><th>{head}\n{body}</table>"


def _text(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}"


def _embedded(svg: str) -> str:
    """The picture without the XML prologue, which has no place inside HTML."""
    return svg[svg.index("<svg") :]
