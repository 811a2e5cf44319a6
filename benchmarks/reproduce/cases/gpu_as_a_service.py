"""GPU as a Service: the default's cost over others by load, and the price of unknown run times."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, mean

from benchmarks.papers import vm_cases
from benchmarks.reproduce.case import NONE_PRINTED, Case, Cell, Done, Form, Table, Words
from benchmarks.reproduce.constants import chosen_on
from benchmarks.reproduce.runs.renting import (
    EXACT,
    INSTANCES,
    SHIPPED,
    WAYS,
    Learned,
    renting,
    unknown,
)

DEFAULT = "default"
OTHERS = ("path relinking", "greedy", "EDF")
SIZES = (10, 20)
ALL_SEEDS = tuple(seed for size in SIZES for seed in vm_cases.SEEDS[size])


def _parts(seeds: Sequence[int], iterations: int) -> Iterable[Words]:
    for size in SIZES:
        for load in vm_cases.LOADS:
            for seed in sorted({*seeds} & {*vm_cases.SEEDS[size]}):
                for method in (DEFAULT, *OTHERS):
                    yield {
                        "method": method,
                        "nodes": size,
                        "load": load,
                        "seed": seed,
                        "iterations": iterations,
                    }


def _table(results: Sequence[Done]) -> Table:
    costs = {tuple(done.words.values()): done.value for done in results}
    ratios: dict[tuple[float, str], list[float]] = {}
    for (method, *case), cost in costs.items():
        if method != DEFAULT:
            of_default = costs[(DEFAULT, *case)]
            ratios.setdefault((case[1], method), []).append(of_default / cost)
    rows: dict[str, dict[str, Cell]] = {}
    for (load, method), found in ratios.items():
        told = f"{mean(found):.2f} ({min(found):.2f} to {max(found):.2f})"
        rows.setdefault(f"{load}", {})[method] = told
    return Table(dict.fromkeys(OTHERS, ""), rows)


UNTAUGHT = (EXACT, "fitted", "models")
ERROR = "error, %"
NODES = {seed: nodes for nodes, seeds in vm_cases.SEEDS.items() for seed in seeds}
COLUMNS = (
    *(("dlq", way) for way in WAYS if way != EXACT),
    *(("greedy", way) for way in UNTAUGHT if way != EXACT),
)


def _unknown_parts(seeds: Sequence[int]) -> Iterable[Words]:
    for method, ways in (("dlq", WAYS), ("greedy", UNTAUGHT)):
        for way in ways:
            for instance in INSTANCES:
                yield {"method": method, "way": way, "instance": instance}
        for way in UNTAUGHT:
            for load in vm_cases.LOADS:
                for seed in seeds:
                    yield {
                        "method": method,
                        "way": way,
                        "instance": f"load {load}",
                        "nodes": NODES[seed],
                        "seed": seed,
                    }


def _unknown(results: Sequence[Done]) -> Table:
    """By instance: cost over that with exact run times, the mean over seeds."""
    found = {_key(done.words): Learned(*done.value) for done in results}
    ratios: dict[str, dict[str, list[float]]] = {}
    for (method, way, instance, seed), learned in found.items():
        row = ratios.setdefault(instance, {})
        if way != EXACT:
            exact = found[method, EXACT, instance, seed].total
            row.setdefault(f"{method}, {way}", []).append(learned.total / exact)
        if (method, way) == ("dlq", "fitted"):
            row.setdefault(ERROR, []).append(100 * learned.error)
    rows: dict[str, dict[str, Cell]] = {
        instance: {column: fmean(each) for column, each in row.items()}
        for instance, row in ratios.items()
    }
    names = [f"{method}, {way}" for method, way in COLUMNS]
    return Table({ERROR: ".0f", **dict.fromkeys(names, ".3f")}, rows)


def _key(words: Words) -> tuple[str, str, str, int]:
    return words["method"], words["way"], words["instance"], words.get("seed", 0)


CASES = (
    Case(
        name="gpuaas-allocation",
        page="gpu-as-a-service.md",
        section="Reproduction: GPU as a Service",
        about="Cost of the default over that of the others: mean, smallest and largest.",
        rows="load",
        run=renting,
        parts=_parts,
        table=_table,
        seeds=ALL_SEEDS,
        short=Form(8, words={"iterations": 100}),
        full=Form(3600, len(ALL_SEEDS), {"iterations": 1000}),
        paper=NONE_PRINTED,
        judged_on=("gpuaas-8101",),
        fitted_on=chosen_on("gpuaas-marginal"),
        in_sample="The benchmark had been seen before the last choice of a constant.",
    ),
    Case(
        name="gpuaas-unknown",
        page="gpu-as-a-service.md",
        section="When nobody knows run times",
        about="Cost with learned run times over that with exact ones. Error: of the estimates at "
        "the submit, the median over jobs.",
        rows="instance",
        run=unknown,
        parts=_unknown_parts,
        table=_unknown,
        seeds=ALL_SEEDS,
        short=Form(40),
        full=Form(200, len(ALL_SEEDS)),
        paper=NONE_PRINTED,
        inputs=(
            f"{SHIPPED}/table_2.toml",
            *(f"{SHIPPED}/{name}/Lof_Selectjobs.csv.gz" for name in INSTANCES.values()),
        ),
        judged_on=("gpuaas-files", "gpuaas-8101"),
        fitted_on=chosen_on("gpuaas-marginal"),
        in_sample="The default's two constants were; the models have none of their own.",
    ),
)
