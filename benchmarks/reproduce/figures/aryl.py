"""Aryl: Figures 8, 10, 13 and 14, and the gains of Table 5."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from benchmarks.reproduce.case import Done, Printed, Table
from benchmarks.reproduce.figures.curves import down, in_a_row, printed
from benchmarks.support.drawing import Plot, Points

Plots = Callable[[Sequence[Done]], list[Plot]]
TableOf = Callable[[Sequence[Done]], Table]


def gains(table: TableOf, jct: str, queue: str, paper: Printed) -> Plots:
    """FIFO's times over those of each method."""

    def plots(results: Sequence[Done]) -> list[Plot]:
        rows = table(results).rows
        names = [*rows]
        places = in_a_row(names)
        titles = {
            jct: ("mean JCT, FIFO's over it, times", ""),
            queue: ("mean queueing, FIFO's over it, times", "y"),
        }
        return [
            Plot(
                "method", y, down(rows, [column], places), logs,
                printed(paper, [column], places), names,
            )
            for column, (y, logs) in titles.items()
        ]  # fmt: skip

    return plots


def shares(table: TableOf, rivals: Sequence[str], jct: str, queue: str) -> Plots:
    """Figures 13 and 14: a line for each rival over the share of elastic jobs."""

    def plots(results: Sequence[Done]) -> list[Plot]:
        rows = table(results).rows
        return [
            Plot("elastic jobs, %", f"mean {what}, FIFO's over it, times", lines, logs)
            for what, logs, lines in (
                ("queueing", "y", _over_share(rows, rivals, queue)),
                ("JCT", "", _over_share(rows, rivals, jct)),
            )
        ]

    return plots


def _over_share(
    rows: Mapping[str, Mapping[str, object]], rivals: Sequence[str], column: str
) -> dict[str, Points]:
    lines: dict[str, Points] = {}
    for rival in rivals:
        places = {
            name: float(name.removeprefix(f"{rival}, ").split()[0])
            for name in rows
            if name.startswith(f"{rival}, ")
        }
        lines[rival] = down(rows, [column], places)[column]
    return lines


def reclaims(table: TableOf, lost: str, damage: str) -> Plots:
    """Figure 8: preemptions, and GPUs vacated besides, by rule, over those of Aryl."""

    def plots(results: Sequence[Done]) -> list[Plot]:
        rows = table(results).rows
        names = [*rows]
        places = in_a_row(names)
        base = rows["aryl"]
        found = []
        for column, what in ((lost, "preempted jobs"), (damage, "GPUs vacated besides")):
            over = {
                name: {what: float(row[column] or 0.0) / float(base[column] or 1.0)}
                for name, row in rows.items()
            }
            told = printed(PRINTED_8, [what], places)
            y = f"{what}, over Aryl's, times"
            found.append(Plot("rule", y, down(over, [what], places), "", told, names))
        return found

    return plots


# The sentence on Figure 8: preemption and damage of SCF and Random over Aryl's.
PRINTED_8: Printed = {
    "scf": {"preempted jobs": 1.5, "GPUs vacated besides": 1.37},
    "random": {"preempted jobs": 1.67, "GPUs vacated besides": 1.59},
}


def least(table: TableOf, rules: Sequence[str]) -> Plots:
    """Preemptions of each rule over those of `exact`, by family of cases."""

    def plots(results: Sequence[Done]) -> list[Plot]:
        rows = table(results).rows
        families = [*rows]
        over = {
            family: {rule: float(row[rule] or 0.0) / float(row["exact"] or 1.0) for rule in rules}
            for family, row in rows.items()
        }
        lines = down(over, [rule for rule in rules if rule != "exact"], in_a_row(families))
        return [Plot("cases", "preempted jobs over the least, times", lines, "y", ticks=families)]

    return plots


def arrivals(table: TableOf) -> Plots:
    """Rules over the load."""

    def plots(results: Sequence[Done]) -> list[Plot]:
        made = table(results)
        rules = [name for name in made.columns if not name.endswith("range")]
        lines = down(made.rows, rules, {load: float(load) for load in made.rows})
        return [Plot("load, part of the GPUs", "mean JCT over the knapsack's, times", lines)]

    return plots
