"""GPU as a Service: cost over that of EDF by the number of nodes (Figure 3), and what is saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from benchmarks.reproduce.case import Done, Table
from benchmarks.reproduce.figures.curves import down, in_a_row
from benchmarks.support.drawing import Plot, Points

Plots = Callable[[Sequence[Done]], list[Plot]]
EDF = "gpuaas-edf"


def over_nodes(rates: Sequence[str]) -> Plots:
    """A plot for each rate: the mean cost of a method over that of EDF."""

    def plots(results: Sequence[Done]) -> list[Plot]:
        return [
            Plot(
                "nodes N",
                "mean cost over that of EDF, times",
                _costs(results, rate),
                "xy",
                title=rate,
            )
            for rate in rates
        ]

    return plots


def _costs(results: Sequence[Done], rate: str) -> dict[str, Points]:
    found: dict[str, dict[int, list[float]]] = {}
    for done in results:
        if done.words["rate"] == rate:
            line = found.setdefault(done.words["method"], {})
            line.setdefault(done.words["nodes"], []).append(float(done.value))
    means = {
        method: {nodes: fmean(costs) for nodes, costs in line.items()}
        for method, line in found.items()
    }
    base = means.get(EDF, {})
    return {
        method.removeprefix("gpuaas-"): [
            (nodes, cost / base[nodes]) for nodes, cost in sorted(line.items()) if nodes in base
        ]
        for method, line in means.items()
    }


def saved(table: Callable[[Sequence[Done]], Table], methods: Mapping[str, str]) -> Plots:
    """Percent that path relinking saves over some methods, by rate. `methods`: rows by their names
    in the picture.
    """

    def plots(results: Sequence[Done]) -> list[Plot]:
        made = table(results)
        rates = [*made.columns]
        lines = {
            shown: down(
                {rate: {row: made.rows.get(row, {}).get(rate)} for rate in rates},
                [row],
                in_a_row(rates),
            )[row]
            for row, shown in methods.items()
        }
        return [Plot("rate of arrivals", "cost saved by path relinking, %", lines, ticks=rates)]

    return plots
