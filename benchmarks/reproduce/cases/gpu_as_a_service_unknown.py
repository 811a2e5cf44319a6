"""GPU as a Service without known run times: the price of learning them from ended jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from benchmarks.papers import vm_cases
from benchmarks.reproduce.case import NONE_PRINTED, Case, Cell, Done, Form, Table, Words
from benchmarks.reproduce.runs.vm_unknown import (
    EXACT,
    INSTANCES,
    SHIPPED,
    WAYS,
    Learned,
    unknown,
)

UNTAUGHT = (EXACT, "fitted", "models")
ERROR = "error, %"
SEEDS = tuple(seed for seeds in vm_cases.SEEDS.values() for seed in seeds)
NODES = {seed: nodes for nodes, seeds in vm_cases.SEEDS.items() for seed in seeds}
COLUMNS = (
    *(("dlq", way) for way in WAYS if way != EXACT),
    *(("greedy", way) for way in UNTAUGHT if way != EXACT),
)


def _parts(seeds: Sequence[int]) -> Iterable[Words]:
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


def _table(results: Sequence[Done]) -> Table:
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
        name="gpuaas-unknown",
        page="gpu-as-a-service.md",
        section="When nobody knows run times",
        about="Cost with learned run times over that with exact ones. Error: of the estimates at "
        "the submit, the median over jobs.",
        rows="instance",
        run=unknown,
        parts=_parts,
        table=_table,
        seeds=SEEDS,
        short=Form(40),
        full=Form(200, len(SEEDS)),
        paper=NONE_PRINTED,
        inputs=(
            f"{SHIPPED}/table_2.toml",
            *(f"{SHIPPED}/{name}/Lof_Selectjobs.csv.gz" for name in INSTANCES.values()),
        ),
        judged_on=("gpuaas-files", "gpuaas-8101"),
        fitted_on=("gpuaas-files", "gpuaas-others", "gpuaas-8101"),
        in_sample="The default's two constants were; the models have none of their own.",
    ),
)
