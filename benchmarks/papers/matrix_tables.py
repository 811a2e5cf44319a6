"""The output of the matrix: a table for each cell, one for the docs, and a summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks.papers.matrix_verdicts import (
    BOTH,
    COST,
    JCT,
    OWN_RATIO,
    POINTS,
    RATIO,
    REFUSED,
    WDMR,
    Ran,
    Row,
    Verdict,
)
from benchmarks.support.report import Report

Key = tuple[str, str]  # workload, knowledge


class Judged(NamedTuple):
    """A cell: the verdict on each figure, and the verdict on the workload's own metric."""

    found: Sequence[Verdict]
    own: Verdict | None


_HEAD = (
    "PRESET",
    "AVG JCT",
    "BE JCT",
    "WDMR",
    "COST",
    "PROMISED",
    "MISSED",
    "REFUSED",
    "CPU S",
    "JOBS/CPU S",
)


def cell_table(row: Row, challenger: str) -> str:
    """One line for each, the least average JCT first; the challenger is marked."""
    names = sorted(row, key=lambda name: row[name].avg_jct_s)
    lines = [_HEAD, *(_line(name, row[name], challenger) for name in names)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            text.rjust(width) if column else text.ljust(width)
            for column, (text, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    )


def figures(report: Report, key: Key, judged: Judged, challenger: str) -> None:
    """Each thing that is asked, as a figure with its goal."""
    for verdict in judged.found:
        name = f"{', '.join(key)}: {verdict.asked} of {challenger}"
        note = f"{'ok' if verdict.ok else 'misses'}: {_held(verdict)}"
        if verdict.asked in (JCT, COST):
            report.figure(name, verdict.over, "x", at_most=RATIO, note=note)
        elif verdict.asked == WDMR:
            report.figure(name, 100 * verdict.over, "points", at_most=100 * POINTS, note=note)
        elif verdict.asked == BOTH:
            report.figure(name, verdict.own, "presets", at_most=0, note=note)
        elif not verdict.ok:
            report.figure(name, verdict.own, "jobs", at_most=verdict.best, note=note)


def summary(report: Report, cells: Mapping[Key, Judged], challenger: str) -> None:
    """The number of cells that hold, by goal and altogether."""
    judged = {key: cell.found for key, cell in cells.items() if cell.found}
    for asked in (JCT, WDMR, COST, BOTH, REFUSED):
        having = [one for verdicts in judged.values() for one in verdicts if one.asked == asked]
        if having and (asked != REFUSED or not all(one.ok for one in having)):
            kept = sum(one.ok for one in having)
            report.figure(f"{challenger}: {asked}", kept, "cells", at_least=len(having))
    own = [cell.own for cell in cells.values() if cell.own is not None]
    if own:
        name = f"{challenger}: own metric, within {OWN_RATIO:g}"
        report.figure(name, sum(one.ok for one in own), "cells", at_least=len(own))
    whole = [key for key, verdicts in judged.items() if all(one.ok for one in verdicts)]
    report.figure(f"{challenger}: all that is asked", len(whole), "cells", at_least=len(judged))


def markdown(rows: Mapping[Key, Row], judged: Mapping[Key, Judged], challenger: str) -> str:
    """A line for each cell: the challenger's figure, the best preset's figure, and the verdict."""
    lines = [
        f"| workload, run times | avg JCT of `{challenger}`, s | the best | wDMR, % | the best | "
        "BE JCT, s | cost | the best "
        "| promises missed | jobs per CPU s | verdict | own metric |",
        "|" + "---|" * 12,
    ]
    for (name, know), row in rows.items():
        if challenger in row:
            lines.append(_cells(f"{name}, {know}", row[challenger], judged[name, know]))
    return "\n".join(lines)


def _cells(title: str, own: Ran, judged: Judged) -> str:
    by_asked = {verdict.asked: verdict for verdict in judged.found}
    cells = [
        title,
        f"{own.avg_jct_s:,.0f}", best_words(by_asked.get(JCT)),
        _percent(own.wdmr), best_words(by_asked.get(WDMR)),
        _whole(own.be_jct_s) if own.wdmr is not None else "",
        _whole(own.cost), best_words(by_asked.get(COST)),
        "" if own.guaranteed is None or own.wdmr is None else f"{own.missed:g} of "
                                                              f"{own.guaranteed:g}",
        f"{own.jobs_per_cpu_s:,.0f}",
        verdict_words(judged.found),
        own_words(judged.own),
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def verdict_words(found: Sequence[Verdict]) -> str:
    """`ok`, or the missed goals and their distances."""
    return "; ".join(f"misses {one.asked}: {_held(one)}" for one in found if not one.ok) or "ok"


def own_words(verdict: Verdict | None) -> str:
    """The same of the workload's own metric, with the metric's name."""
    if verdict is None:
        return ""
    return f"{verdict.asked}: ok" if verdict.ok else verdict_words([verdict])


def _held(verdict: Verdict) -> str:
    """The challenger's figure beside its rival's."""
    if verdict.asked == BOTH:
        return f"beaten by {verdict.by}" if verdict.by else "nobody"
    if verdict.asked == WDMR:
        return f"{100 * verdict.own:.2f} % against {100 * verdict.best:.2f} % of {verdict.by}"
    shown = f"{verdict.own:,.0f} against {verdict.best:,.0f} of {verdict.by}"
    return shown if verdict.asked == REFUSED else f"{verdict.over:.2f} x, {shown}"


def best_words(verdict: Verdict | None) -> str:
    """The best preset's figure, and its name."""
    if verdict is None:
        return ""
    shown = f"{100 * verdict.best:.2f}" if verdict.asked == WDMR else f"{verdict.best:,.0f}"
    return f"{shown}, `{verdict.by}`"


def _line(name: str, ran: Ran, challenger: str) -> tuple[str, ...]:
    return (
        f"{'> ' if name == challenger else '  '}{name}",
        f"{ran.avg_jct_s:,.1f}",
        _whole(ran.be_jct_s, "-") if ran.wdmr is not None else "-",
        f"{_percent(ran.wdmr)} %" if ran.wdmr is not None else "-",
        _whole(ran.cost, "-"),
        "-" if ran.guaranteed is None else f"{ran.guaranteed:g}",
        "-" if ran.missed is None else f"{ran.missed:g}",
        f"{ran.refused:g}",
        f"{ran.cpu_s:.2f}",
        f"{ran.jobs_per_cpu_s:,.0f}",
    )


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f}"


def _whole(value: float | None, none: str = "") -> str:
    return none if value is None else f"{value:,.0f}"
