"""Figures of the papers: which point of which line comes from which result, and the axes."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.reproduce.case import Done, Table
from benchmarks.reproduce.figures import aryl, chronus, renting, tiresias
from benchmarks.reproduce.figures.curves import across, down, in_a_row, printed
from benchmarks.support.drawing import Plot

ROWS: dict[str, dict[str, object]] = {
    "a": {"x": 1.0, "y": "words"},
    "b": {"x": 2.0, "y": None},
    "c": {"x": 3.0},
}


def lines_of(plot: Plot) -> dict[str, list[tuple[float, float]]]:
    """After a look at the axes."""
    assert plot.x
    assert plot.y
    return {name: [*points] for name, points in plot.lines.items()}


def table_of(rows: dict[str, dict[str, float]]) -> Table:
    return Table(dict.fromkeys(next(iter(rows.values())), ""), rows)


def test_a_line_has_the_numbers_of_a_column_or_of_a_row() -> None:
    places = in_a_row([*ROWS])
    assert down(ROWS, ["x", "y"], places) == {"x": [(0, 1), (1, 2), (2, 3)], "y": []}
    assert across(ROWS, ["c", "a"], {"x": 7.0, "y": 8.0}) == {"c": [(7, 3)], "a": [(7, 1)]}
    assert printed({"b": {"x": 9.0}}, ["x"], places) == {"paper": [(1, 9)]}
    assert printed({}, ["x"], places) == {}


def test_policies_over_density_are_means_over_the_seeds() -> None:
    def done(policy: str, density: int, wdmr: float | None) -> Done:
        return Done({"policy": policy, "density": density}, {"wdmr": wdmr})

    results = [done("edf", 160, 0.4), done("edf", 80, 0.125), done("edf", 80, 0.275)]
    (plot,) = chronus.over_density("wdmr")([*results, done("srtf", 80, None)])
    assert lines_of(plot) == {"edf": [(80, 20), (160, 40)]}


def test_the_time_of_a_call_stands_by_question_and_load() -> None:
    rows = [
        {"question": "most reward", "load": 0.8, "jobs": jobs, "wall_s": jobs / 100}
        for jobs in (100, 25)
    ]
    (plot,) = chronus.latency([Done({}, rows)])
    assert lines_of(plot) == {"most reward, load 0.8": [(25, 0.25), (100, 1.0)]}
    assert plot.printed == {"paper: longest call": [(100, 10.0)]}


def test_a_sweep_has_misses_beside_completion_times() -> None:
    rows = {"5 minutes": {"wDMR, %": 1.0, "BE JCT, h": 16.0}}
    drawn = chronus.swept(lambda _done: table_of(rows), "SLO lease, minutes", {"5 minutes": 5.0})
    misses, times = drawn([])
    assert lines_of(misses) == {"wDMR, %": [(5, 1)]}
    assert lines_of(times) == {"BE JCT, h": [(5, 16)]}


def test_workloads_and_placements_stand_at_named_places() -> None:
    rows = {"edf": {"slo: wDMR, %": 1.0, "mix1: wDMR, %": 2.0, "mix1: BE JCT, h": 3.0}}
    misses, times = chronus.compared(lambda _done: table_of(rows))([])
    assert misses.ticks == ["edf"]
    assert lines_of(misses) == {"slo": [(0, 1)], "mix1": [(0, 2)]}
    assert lines_of(times) == {"mix1": [(0, 3)]}
    done = [
        Done({"placement": "local search", "price": price}, {"jct_s": jct_s})
        for price, jct_s in (("free", 10.0), ("free", 20.0), ("charged", 40.0))
    ]
    (plot,) = chronus.placements(done)
    assert plot.ticks == ["free", "charged"]
    assert lines_of(plot) == {"local search": [(0, 15), (1, 40)]}


def test_settings_of_tiresias_stand_at_their_numbers() -> None:
    def table(_done: Sequence[Done]) -> Table:
        names = ("(2, 0.5h)", "(2, 1h)", "(3, 1h, 2h)", "PROMOTEKNOB 16")
        return table_of({name: {"avg": float(at)} for at, name in enumerate(names)})

    thresholds, queues, knobs = tiresias.sensitivity(table, of_l=True)([])
    assert lines_of(thresholds)["avg"] == [(0.5, 0), (1, 1)]
    assert lines_of(queues)["avg"] == [(2, 1), (3, 2)]
    assert lines_of(knobs)["avg"] == [(16, 3)]
    assert queues.printed == {"paper: avg": ((3, 0.99), (4, 0.99))}
    assert tiresias.sensitivity(table, of_l=False)([])[1].printed == {}


def test_a_distribution_has_times_along_x() -> None:
    done = Done({}, {"name": "SRTF", "jct_s": [[0.5, 60.0], [1.0, 90.0]]})
    (plot,) = tiresias.distribution([done])
    assert lines_of(plot) == {"SRTF": [(60, 0.5), (90, 1.0)]}
    assert plot.steps


def test_rivals_of_aryl_stand_over_the_share_of_elastic_jobs() -> None:
    rows = {"AFS, 20 % elastic": {"jct": 1.5, "queue": 80.0}, "Aryl, 60 % elastic": {"jct": 2.0}}
    drawn = aryl.shares(lambda _done: table_of(rows), ["AFS", "Aryl"], "jct", "queue")
    queues, times = drawn([])
    assert lines_of(queues) == {"AFS": [(20, 80)], "Aryl": []}
    assert lines_of(times) == {"AFS": [(20, 1.5)], "Aryl": [(60, 2)]}


def test_rules_of_reclaims_stand_over_those_of_aryl() -> None:
    rows = {"aryl": {"lost": 2.0, "damage": 0.2}, "random": {"lost": 3.0, "damage": 0.8}}
    lost, damage = aryl.reclaims(lambda _done: table_of(rows), "lost", "damage")([])
    assert lines_of(lost) == {"preempted jobs": [(0, 1), (1, 1.5)]}
    assert lost.printed == {"paper": [(1, 1.67)]}
    assert lines_of(damage)["GPUs vacated besides"] == [(0, 1), (1, 4)]


def test_gains_of_aryl_have_the_papers_beside_them() -> None:
    rows = {"Baseline": {"jct": 1.0, "queue": 1.0}, "Basic": {"jct": 1.3, "queue": 9.0}}
    drawn = aryl.gains(lambda _done: table_of(rows), "jct", "queue", {"Basic": {"jct": 1.5}})
    times, queues = drawn([])
    assert lines_of(times) == {"jct": [(0, 1), (1, 1.3)]}
    assert times.printed == {"paper": [(1, 1.5)]}
    assert queues.printed == {}


def test_costs_stand_over_nodes_by_that_of_edf() -> None:
    def done(method: str, nodes: int, cost: float) -> Done:
        return Done({"method": method, "rate": "high", "nodes": nodes}, cost)

    results = [done("gpuaas-edf", 5, 10.0), done("gpuaas-greedy", 5, 4.0)]
    high, low = renting.over_nodes(["high", "low"])([*results, done("gpuaas-greedy", 9, 1.0)])
    assert lines_of(high) == {"edf": [(5, 1)], "greedy": [(5, 0.4)]}
    assert high.title == "high"
    assert lines_of(low) == {}
