"""Aryl's rules one by one: reclaims against the proven least, sizes of elastic jobs, arrivals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from benchmarks.papers.elastic_cases import ARRIVAL_SEEDS, KNAPSACK_SEEDS, LOADS, THREE_SEEDS
from benchmarks.papers.elastic_fill import RULES
from benchmarks.planning.reclaim import OTHERS
from benchmarks.planning.reclaim_cases import SCATTERED_SEEDS, SEEDS
from benchmarks.reproduce.case import NONE_PRINTED, Case, Cell, Done, Figure, Form, Table, Words
from benchmarks.reproduce.figures.aryl import arrivals, least
from benchmarks.reproduce.runs.planning.elastic_rules import arrived, packed, three_jobs
from benchmarks.reproduce.runs.planning.reclaimed import FAMILIES, reclaimed

PAGE = "aryl.md"
COUNTED = ("exact", "bound", "Algorithm 1", *OTHERS)
TOO_MANY, LOST = "Algorithm 1 over the least", "GPU-seconds lost, Algorithm 1 over `exact`"
RECLAIMED = {
    "cases": ",.0f",
    "proven": ",.0f",
    **dict.fromkeys(COUNTED, ",.0f"),
    TOO_MANY: ".2f",
    LOST: ".2f",
    "CPU, median, ms": ",.0f",
}
_THREES = 20  # cases of a part
KNAPSACK_JOBS = (1000, 5000)


def _reclaims(seeds: Sequence[int]) -> Iterable[Words]:
    for family, recipes in FAMILIES.items():
        for at, recipe in enumerate(recipes):
            own = SCATTERED_SEEDS if recipe.scattered else SEEDS
            for seed in own[: len(seeds)]:
                yield {"family": family, "at": at, "seed": seed}


def _reclaimed(results: Sequence[Done]) -> Table:
    rows: dict[str, dict[str, Cell]] = {}
    for family in FAMILIES:
        own = [done.value for done in results if done.words["family"] == family]
        total = {name: sum(one[name] for one in own) for name in own[0]}
        rows[family] = {
            "cases": len(own),
            "proven": total["proven"],
            **{name: total[name] for name in COUNTED},
            TOO_MANY: total["Algorithm 1"] / total["exact"] if total["exact"] else None,
            LOST: total["lost, Algorithm 1"] / total["lost"] if total["lost"] else None,
            "CPU, median, ms": median(one["cpu_ms"] for one in own),
        }
    return Table(RECLAIMED, rows)


def _packs(seeds: Sequence[int], jobs: Sequence[int]) -> Iterable[Words]:
    for count in jobs:
        for at, _ in enumerate(seeds):
            yield {"jobs": count, "at": at}


def _packed(results: Sequence[Done]) -> Table:
    """The worst of the seeds."""
    rows: dict[str, dict[str, Cell]] = {}
    for count in dict.fromkeys(done.words["jobs"] for done in results):
        own = [done.value for done in results if done.words["jobs"] == count]
        rows[f"{count:,} jobs"] = {name: max(one[name] for one in own) for name in own[0]}
    columns = [*next(iter(rows.values()))]
    return Table({name: ".1e" if name.endswith("%") else ",.0f" for name in columns}, rows)


def _threes(_seeds: Sequence[int], count: int) -> Iterable[Words]:
    for begin in range(0, count, _THREES):
        yield {"begin": begin, "end": min(count, begin + _THREES)}


def _three(results: Sequence[Done]) -> Table:
    rows: dict[str, dict[str, Cell]] = {}
    for rule in RULES:
        over = [one for done in results for one in done.value[rule]]
        rows[f"`{rule}`"] = {
            "above the optimum, mean, %": 100.0 * (fmean(over) - 1.0),
            "worst, %": 100.0 * (max(over) - 1.0),
            "optimal": sum(one < 1.0 + 1e-9 for one in over),
            "cases": len(over),
        }
    shown = (".2f", ".1f", ",.0f", ",.0f")
    return Table(dict(zip(next(iter(rows.values())), shown, strict=True)), rows)


def _arrivals(seeds: Sequence[int], loads: Sequence[float]) -> Iterable[Words]:
    for load in loads:
        for at, _ in enumerate(seeds):
            yield {"load": load, "at": at}


def _arrived(results: Sequence[Done]) -> Table:
    """Over the knapsack's: of the means, and the smallest and largest of the seeds."""
    rows: dict[str, dict[str, Cell]] = {}
    for load in dict.fromkeys(done.words["load"] for done in results):
        own = [done.value for done in results if done.words["load"] == load]
        row: dict[str, Cell] = {}
        for rule in RULES:
            over = [one[rule] / one["knapsack"] for one in own]
            row[rule] = fmean(one[rule] for one in own) / fmean(one["knapsack"] for one in own)
            row[f"{rule}, range"] = f"{min(over):.2f} to {max(over):.2f}"
        rows[f"{load:g}"] = {name: cell for name, cell in row.items() if "knapsack" not in name}
    columns = {name: "" if "range" in name else ".2f" for name in next(iter(rows.values()))}
    return Table(columns, rows)


def _case(
    name: str,
    section: str,
    about: str,
    rows: str,
    run: Callable[..., Any],
    parts: Callable[..., Iterable[Words]],
    table: Callable[[Sequence[Done]], Table],
    seeds: tuple[int, ...],
    short: Form,
    full: Form,
    judged_on: str,
    figure: Figure | None = None,
) -> Case:
    return Case(
        name=name, page=PAGE, section=section, about=about, rows=rows, run=run, parts=parts,
        table=table, seeds=seeds, short=short, full=full, paper=NONE_PRINTED,
        judged_on=(judged_on,), fitted_on=(), figure=figure,
    )  # fmt: skip


_THREE = Form(2, words={"count": len(THREE_SEEDS)})
_ALL: Mapping[str, Any] = {"loads": list(LOADS)}
CASES = (
    _case(
        "aryl-reclaims", "Reclaims",
        "Jobs preempted by each rule, summed over the cases; scattered workers have other seeds.",
        "servers", reclaimed, _reclaims, _reclaimed, SEEDS, Form(10, 2), Form(30, 5), "reclaims",
        Figure("Preemptions of the rules over the proven least.", least(_reclaimed, COUNTED)),
    ),
    _case(
        "aryl-knapsack", "Sizes", "4,160 GPUs: the worst gap to the bound, and the longest time.",
        "jobs", packed, _packs, _packed, KNAPSACK_SEEDS,
        Form(5, 2, {"jobs": KNAPSACK_JOBS}), Form(10, 5, {"jobs": KNAPSACK_JOBS}),
        "elastic-sizes",
    ),
    _case(
        "aryl-three-jobs", "Sizes", "Three jobs: the sum of completion times beside the optimum.",
        "rule", three_jobs, _threes, _three, THREE_SEEDS[:1],
        _THREE, _THREE, "elastic-sizes",
    ),
    _case(
        "aryl-arrivals", "Sizes", "Jobs that arrive: mean completion time over the knapsack's.",
        "load", arrived, _arrivals, _arrived, ARRIVAL_SEEDS,
        Form(20, 2, _ALL), Form(90, 8, _ALL), "elastic-sizes",
        Figure("Mean completion time over the knapsack's, by load.", arrivals(_arrived)),
    ),
)  # fmt: skip
