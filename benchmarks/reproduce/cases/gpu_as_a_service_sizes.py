"""GPU as a Service by rate and size: all methods, and rivals with more nodes.

The analysis of covariance tests the same runs. The validation in a cloud is a simulation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import log
from statistics import fmean

from benchmarks.reproduce.case import NONE_PRINTED, Case, Cell, Done, Figure, Form, Table, Words
from benchmarks.reproduce.constants import chosen_on
from benchmarks.reproduce.figures.renting import over_nodes
from benchmarks.reproduce.runs.ancova import Observation, ancova
from benchmarks.reproduce.runs.vm_costs import (
    BOOT_S,
    ERROR,
    MIGRATE_S,
    Loaded,
    azure,
    cost,
    loaded,
)
from benchmarks.reproduce.runs.vm_rates import RATES

PAGE = "gpu-as-a-service-cases.md"
SEEDS = tuple(range(9101, 9111))  # fixed before the figures
AZURE_SEEDS = tuple(range(9201, 9211))
RELINKING = "gpuaas-path-relinking"
OWN = "gpuaas-marginal"
VARIANTS = ("wct", "fast-wct", "fast-b", "adj-wct")
DP = tuple(f"gpuaas-dp/{variant}" for variant in VARIANTS)
RIVALS = ("gpuaas-edf", *DP, "gpuaas-greedy", "gpuaas-local-search", OWN)
FULL_RIVALS = ("gpuaas-fifo", "gpuaas-ps", "gpuaas-randomized", *RIVALS)
BEST_DP = "the best dynamic program"
MORE_NODES = (2, 4, 8)
SIZES = (10, 20, 50, 100)
LARGEST, LARGEST_SEEDS = 100, 3  # as many seeds as the paper; ten would take a night of their own
MOST = 8  # times as many nodes: one for each job
# Rates, how much smaller the power is with which GPUs help, and how much longer the run times are.
LOADS = (
    ("0.6", 0.0, 1.0),
    ("0.8", 0.0, 1.0),
    ("1.0", 0.0, 1.0),
    ("1.2", 0.0, 1.0),
    ("1.8", 0.0, 1.0),
    ("1.8", 0.4, 0.3),
)
AGAINST = ("gpuaas-edf", "gpuaas-dp/adj-wct")
HIERARCHICAL = "gpuaas-hierarchical"
OF_ALL: Mapping[str, str] = dict.fromkeys(RATES, "+.1f")

# Of `gpuaas-marginal`; the others have no constant of ours.
FITTED_ON = chosen_on("gpuaas-marginal")
SHORT = Form(cpu_s=100, seeds=3, words={"sizes": [5, 10], "iterations": 30, "methods": RIVALS})
FULL = Form(
    cpu_s=10_000,
    seeds=10,
    words={"sizes": SIZES, "iterations": 100, "methods": FULL_RIVALS},
)


def _parts(
    seeds: Sequence[int], sizes: Sequence[int], iterations: int, methods: Sequence[str]
) -> Iterable[Words]:
    for method in (RELINKING, *methods):
        for rate in RATES:
            for nodes in sizes:
                for seed in _seeds(nodes, seeds):
                    yield _words(method, rate, nodes, seed, iterations)


def _seeds(nodes: int, seeds: Sequence[int]) -> Sequence[int]:
    return seeds[:LARGEST_SEEDS] if nodes >= LARGEST else seeds


def _words(method: str, rate: str, nodes: int, seed: int, iterations: int) -> dict[str, str | int]:
    return {
        "method": method,
        "rate": rate,
        "nodes": nodes,
        "seed": seed,
        "iterations": iterations,
    }


def _reductions(results: Sequence[Done]) -> Table:
    """pcr of equation (3): by method and rate, the mean over sizes and seeds, in percent."""
    costs = {_key(done.words): float(done.value) for done in results}
    found: dict[str, dict[str, list[float]]] = {}
    for (method, rate, nodes, seed), there in costs.items():
        if method != RELINKING:
            ours = costs[RELINKING, rate, nodes, seed]
            row = found.setdefault(method, {name: [] for name in RATES})
            row[rate].append(100 * (there - ours) / there)
    rows: dict[str, dict[str, Cell]] = {
        method: {rate: fmean(each) if each else None for rate, each in row.items()}
        for method, row in found.items()
    }
    if set(DP) <= set(rows):
        rows[BEST_DP] = {rate: _least(rows[method][rate] for method in DP) for rate in RATES}
    return Table(OF_ALL, rows)


def _least(cells: Iterable[Cell]) -> Cell:
    """The saving over the best of some methods."""
    return min((float(cell) for cell in cells if cell is not None), default=None)


def _key(words: Words) -> tuple[str, str, int, int]:
    return words["method"], words["rate"], words["nodes"], words["seed"]


def _tested(results: Sequence[Done]) -> Table:
    """By rate: log cost over methods, with log nodes as the covariate."""
    rows: dict[str, Mapping[str, Cell]] = {}
    for rate in RATES:
        seen = [
            Observation(done.words["method"], log(done.words["nodes"]), log(done.value))
            for done in results
            if done.words["rate"] == rate
        ]
        told = ancova(seen)
        rows[rate] = {
            "F": told.groups.value,
            "degrees": f"{told.groups.between}, {told.groups.within}",
            "chance": told.groups.chance,
            "chance of equal slopes": told.slopes.chance,
            "Shapiro": told.normal,
        }
    columns = {
        "F": ",.1f",
        "degrees": "",
        "chance": ".1e",
        "chance of equal slopes": ".2f",
        "Shapiro": ".1e",
    }
    return Table(columns, rows)


def _wider_parts(seeds: Sequence[int], sizes: Sequence[int], iterations: int) -> Iterable[Words]:
    for nodes in sizes:
        for seed in _seeds(nodes, seeds):
            for rate in RATES:
                yield _words(RELINKING, rate, nodes, seed, iterations)
                for method in ("gpuaas-edf", *DP):
                    for times in MORE_NODES:
                        yield {**_words(method, rate, nodes, seed, iterations), "times": times}


def _wider(results: Sequence[Done]) -> Table:
    """pcr of path relinking on N nodes over the others on more."""
    ours = {_key(done.words): float(done.value) for done in results if "times" not in done.words}
    found: dict[str, dict[str, list[float]]] = {}
    for done in results:
        if "times" in done.words:
            method, rate, nodes, seed = _key(done.words)
            row = found.setdefault(f"{method}, {done.words['times']}N", {r: [] for r in RATES})
            there = float(done.value)
            row[rate].append(100 * (there - ours[RELINKING, rate, nodes, seed]) / there)
    rows = {name: {rate: fmean(each) for rate, each in row.items()} for name, row in found.items()}
    return Table(OF_ALL, rows)


def _loaded_parts(seeds: Sequence[int], sizes: Sequence[int], iterations: int) -> Iterable[Words]:
    for nodes in sizes:
        for seed in seeds:
            for rate, weaker, longer in LOADS:
                for method in (RELINKING, *AGAINST):
                    yield {
                        **_words(method, rate, nodes, seed, iterations),
                        "times": 1 if method == RELINKING else MOST,
                        "weaker": weaker,
                        "longer": longer,
                    }


def _loaded(results: Sequence[Done]) -> Table:
    """By load: how full N nodes are under path relinking, and the savings on them."""
    found: dict[str, dict[str, list[float]]] = {}
    ours = Loaded(1.0, 0.0, 0.0)
    for done in results:
        words, there = done.words, Loaded(*done.value)
        name = words["rate"] + (", GPUs help less" if words["weaker"] else "")
        row = found.setdefault(name, {column: [] for column in LOADED})
        if words["method"] == RELINKING:
            ours = there
            row[AT_ONCE].append(ours.at_once)
            row[LATE].append(100 * ours.late / ours.total)
        else:
            row[f"saved over {words['method']}, {MOST}N, %"].append(
                100 * (there.total - ours.total) / there.total
            )
    return Table(
        LOADED, {name: {c: fmean(each) for c, each in row.items()} for name, row in found.items()}
    )


AT_ONCE, LATE = "jobs at once, a node", "of it for lateness, %"
LOADED: Mapping[str, str] = {
    AT_ONCE: ".1f",
    LATE: ".0f",
    **{f"saved over {method}, {MOST}N, %": "+.1f" for method in AGAINST},
}


def _hierarchical_parts(
    seeds: Sequence[int], sizes: Sequence[int], jobs: int, rates: Sequence[str]
) -> Iterable[Words]:
    for method in (RELINKING, HIERARCHICAL):
        for rate in rates:
            for nodes in sizes:
                for seed in seeds:
                    yield {**_words(method, rate, nodes, seed, 100), "jobs": jobs, "hourly": False}


def _azure_parts(seeds: Sequence[int]) -> Iterable[Words]:
    for seed in seeds:
        yield {"seed": seed, "boot_s": 0.0, "migrate_s": 0.0, "error": 0.0}
        yield {"seed": seed, "boot_s": BOOT_S, "migrate_s": MIGRATE_S, "error": ERROR}


def _azure(results: Sequence[Done]) -> Table:
    foretold = fmean(float(done.value) for done in results[::2])
    actual = fmean(float(done.value) for done in results[1::2])
    apart = [
        100 * abs(real.value - told.value) / told.value
        for told, real in zip(results[::2], results[1::2], strict=True)
    ]
    columns = {
        "predicted": ".2f",
        "actual": ".2f",
        "difference, %": ".2f",
        "mean of each, %": ".1f",
    }
    row = {
        "predicted": foretold,
        "actual": actual,
        "difference, %": 100 * (actual - foretold) / foretold,
        "mean of each, %": fmean(apart),
    }
    return Table(columns, {"sum": row})


CASES = (
    Case(
        name="gpuaas-reductions",
        page=PAGE,
        section="Costs by rate",
        about="Cost that path relinking saves over each method, in percent of that method's cost "
        "(equation 3). A negative number: the other method is cheaper.",
        rows="over",
        run=cost,
        parts=_parts,
        table=_reductions,
        seeds=SEEDS,
        short=SHORT,
        full=FULL,
        paper=NONE_PRINTED,
        judged_on=("gpuaas-9101",),
        fitted_on=FITTED_ON,
        figure=Figure(
            "Figure 3 in shape: cost by the number of nodes, at each rate.",
            over_nodes(list(RATES)),
        ),
    ),
    Case(
        name="gpuaas-ancova",
        page=PAGE,
        section="Analysis of covariance",
        about="The same runs: log cost by method, with log N as the covariate.",
        rows="rate",
        run=cost,
        parts=_parts,
        table=_tested,
        seeds=SEEDS,
        short=SHORT,
        full=FULL,
        paper=NONE_PRINTED,
        judged_on=("gpuaas-9101",),
        fitted_on=FITTED_ON,
    ),
    Case(
        name="gpuaas-more-nodes",
        page=PAGE,
        section="More nodes for the rivals",
        about="Cost that path relinking on N nodes saves over methods that have more, in percent.",
        rows="over",
        run=cost,
        parts=_wider_parts,
        table=_wider,
        seeds=SEEDS,
        short=Form(cpu_s=40, seeds=1, words={"sizes": [10], "iterations": 30}),
        full=Form(cpu_s=6_500, seeds=10, words={"sizes": SIZES, "iterations": 100}),
        paper=NONE_PRINTED,
        judged_on=("gpuaas-9101",),
        fitted_on=FITTED_ON,
    ),
    Case(
        name="gpuaas-load",
        page=PAGE,
        section="More nodes for the rivals",
        about="The same by load: arrivals so many times as dense as at the exponential rate. In "
        "the last row GPUs speed jobs up with a power smaller by 0.4, and the time on one is 0.3 "
        "as long. Seeds 9101 to 9103 were looked at for that.",
        rows="rate",
        run=loaded,
        parts=_loaded_parts,
        table=_loaded,
        seeds=SEEDS[1:],
        short=Form(cpu_s=20, seeds=2, words={"sizes": [10], "iterations": 30}),
        full=Form(cpu_s=1500, seeds=9, words={"sizes": [10, 20, 50], "iterations": 100}),
        paper=NONE_PRINTED,
        judged_on=("gpuaas-9101",),
        fitted_on=FITTED_ON,
    ),
    Case(
        name="gpuaas-hierarchical",
        page=PAGE,
        section="The Hierarchical Method",
        about="Cost that path relinking saves over it, in percent, on the first jobs of each case. "
        "Decisions come at submits and completions only.",
        rows="over",
        run=cost,
        parts=_hierarchical_parts,
        table=_reductions,
        seeds=SEEDS,
        short=Form(
            cpu_s=60, seeds=1, words={"sizes": [10], "jobs": 20, "rates": ["exponential", "high"]}
        ),
        full=Form(cpu_s=4000, seeds=3, words={"sizes": [10], "jobs": 100, "rates": RATES}),
        paper=NONE_PRINTED,
        judged_on=("gpuaas-9101",),
        fitted_on=FITTED_ON,
    ),
    Case(
        name="gpuaas-azure",
        page=PAGE,
        section="The validation in a cloud, simulated",
        about="Six jobs as in Table 3, two nodes of the first six types, a job every 300 s.",
        rows="cost",
        run=azure,
        parts=_azure_parts,
        table=_azure,
        seeds=AZURE_SEEDS,
        short=Form(cpu_s=2, seeds=10),
        full=Form(cpu_s=10, seeds=10),
        judged_on=("gpuaas-9201",),
        fitted_on=(),
        paper={"sum": {"predicted": 16.03, "actual": 16.72, "difference, %": 4.31}},
        differs={"sum": "Other run times: those of the paper are not printed."},
    ),
)
