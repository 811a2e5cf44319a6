"""GPU as a Service: the default's cost over that of the others, over load."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean

from benchmarks.papers import vm_cases
from benchmarks.reproduce.case import NONE_PRINTED, Case, Cell, Done, Form, Table, Words
from benchmarks.reproduce.runs.renting import renting

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
        short=Form(30, words={"iterations": 100}),
        full=Form(3600, len(ALL_SEEDS), {"iterations": 1000}),
        paper=NONE_PRINTED,
        judged_on=("gpuaas-8101",),
        fitted_on=("gpuaas-files", "gpuaas-others", "gpuaas-8101"),
        in_sample="The benchmark had been seen before the last choice of a constant.",
    ),
)
