"""Chronus: misses and completion times over density (Figure 9), and its sweeps (Figures 6 to 8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from benchmarks.reproduce.case import Done, Table
from benchmarks.reproduce.figures.curves import across, down, in_a_row
from benchmarks.support.drawing import Plot, Points

Plots = Callable[[Sequence[Done]], list[Plot]]
MISSES, BE_JCT = "wDMR, %", "BE JCT, h"
PERCENT = 100.0
SOLVER_S = 10.0  # section 5.2: the maximal latency of its solver is less
UNITS: Mapping[str, tuple[str, float]] = {
    "wdmr": ("wDMR of jobs with deadlines, %", PERCENT),
    "be_jct_h": ("mean JCT of best effort, hours", 1.0),
}


def over_density(figure: str) -> Plots:
    """A line for each policy."""

    def plots(results: Sequence[Done]) -> list[Plot]:
        y, unit = UNITS[figure]
        return [Plot("density of jobs, %", y, _by_policy(results, "density", figure, unit))]

    return plots


def over_noise(results: Sequence[Done]) -> list[Plot]:
    """The same over the error of estimates, for the policies that have some."""
    told = [done for done in results if done.words["noise"] is not None]
    y, unit = UNITS["wdmr"]
    lines = _by_policy(told, "noise", "wdmr", unit)
    return [Plot("error of estimates, part of the run time", y, lines)]


def swept(table: Callable[[Sequence[Done]], Table], x: str, places: Mapping[str, float]) -> Plots:
    """Misses, and beside them completion times, over a setting."""

    def plots(results: Sequence[Done]) -> list[Plot]:
        rows = table(results).rows
        return [
            Plot(x, UNITS["wdmr"][0], down(rows, [MISSES], places)),
            Plot(x, UNITS["be_jct_h"][0], down(rows, [BE_JCT], places)),
        ]

    return plots


def compared(table: Callable[[Sequence[Done]], Table]) -> Plots:
    """Figures 9a and 9b: policies by workload."""

    def plots(results: Sequence[Done]) -> list[Plot]:
        made = table(results)
        names = [*made.rows]
        found = []
        for figure, (y, _) in zip((MISSES, BE_JCT), UNITS.values(), strict=True):
            columns = [column for column in made.columns if column.endswith(figure)]
            lines = down(made.rows, columns, in_a_row(names))
            shown = {column.partition(":")[0]: points for column, points in lines.items()}
            found.append(Plot("policy", y, shown, ticks=names))
        return found

    return plots


def rounding(table: Callable[[Sequence[Done]], Table], places: Mapping[str, float]) -> Plots:
    """Figure 8a: misses and completion times over the share of hostile jobs."""

    def plots(results: Sequence[Done]) -> list[Plot]:
        made = table(results)
        found = []
        for figure, (y, _) in zip((MISSES, BE_JCT), UNITS.values(), strict=True):
            columns = [column for column in made.columns if column.endswith(figure)]
            lines = down(made.rows, columns, places)
            shown = {column.partition(":")[0]: points for column, points in lines.items()}
            found.append(Plot("share of hostile jobs", y, shown))
        return found

    return plots


def objective(table: Callable[[Sequence[Done]], Table]) -> Plots:
    """Figure 7b: all jobs, strict and soft ones."""

    def plots(results: Sequence[Done]) -> list[Plot]:
        rows = table(results).rows
        names, kinds = [*rows], (MISSES, "strict", "soft")
        lines = down(rows, kinds, in_a_row(names))
        return [Plot("the program asks for, at a density", UNITS["wdmr"][0], lines, ticks=names)]

    return plots


def refused(table: Callable[[Sequence[Done]], Table]) -> Plots:
    """Figure 7c."""

    def plots(results: Sequence[Done]) -> list[Plot]:
        made = table(results)
        names = [*made.rows]
        lines = down(made.rows, made.columns, in_a_row(names))
        return [Plot("workload", UNITS["wdmr"][0], lines, ticks=names)]

    return plots


def latency(results: Sequence[Done]) -> list[Plot]:
    """Figure 7d: the time of a call by the number of jobs, for each question and load."""
    lines: dict[str, dict[float, list[float]]] = {}
    for done in results:
        for row in done.value:
            name = f"{row['question']}, load {row['load']:g}"
            lines.setdefault(name, {}).setdefault(row["jobs"], []).append(row["wall_s"])
    drawn: dict[str, Points] = {
        name: [(jobs, fmean(times_s)) for jobs, times_s in sorted(line.items())]
        for name, line in lines.items()
    }
    most = max(jobs for line in lines.values() for jobs in line)
    limit = {"paper: longest call": [(most, SOLVER_S)]}
    return [Plot("jobs of a program", "wall time of a call, s", drawn, logs="xy", printed=limit)]


def placements(results: Sequence[Done]) -> list[Plot]:
    """Figure 8b: mean completion times by placement, with and without the prices."""
    found: dict[str, dict[str, list[float]]] = {}
    for done in results:
        row = found.setdefault(done.words["placement"], {})
        row.setdefault(done.words["price"], []).append(done.value["jct_s"])
    rows = {name: {price: fmean(one) for price, one in row.items()} for name, row in found.items()}
    prices = [*dict.fromkeys(done.words["price"] for done in results)]
    lines = across(rows, rows, in_a_row(prices))
    return [Plot("what is charged", "mean JCT of best effort, s", lines, ticks=prices)]


def _by_policy(results: Sequence[Done], over: str, figure: str, unit: float) -> dict[str, Points]:
    """The mean over the seeds at each place."""
    found: dict[str, dict[float, list[float]]] = {}
    for done in results:
        if (value := done.value[figure]) is not None:
            line = found.setdefault(done.words["policy"], {})
            line.setdefault(done.words[over], []).append(unit * value)
    return {
        name: [(at, fmean(values)) for at, values in sorted(line.items())]
        for name, line in found.items()
    }
