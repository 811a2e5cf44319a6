"""Chronus' rivals by their own methods: the program of 3Sigma, and the sizes of GENIE."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from statistics import mean

from benchmarks.papers.chronus.sweeps import swept
from benchmarks.papers.deadline_cases import MIX_NAMES, SEEDS
from benchmarks.reproduce.case import NONE_PRINTED, Case, Cell, Done, Form, Table, Words

PAGE = "chronus-rivals.md"
DRAWN = ("chronus-drawn",)
DENSITY = 120
FITTED = "Only `chronus` and `dlq` have constants of ours: they were chosen on seed 7501."
Rivals = Mapping[str, tuple[str, tuple[str, ...]]]  # row -> policy and its settings
THREE_SIGMA: Rivals = {
    "3sigma": ("3sigma", ()),
    "3sigma, plan=program": ("3sigma", ("plan=program",)),
    "edf": ("edf", ()),
    "chronus-paper": ("chronus-paper", ()),
    "chronus": ("chronus", ()),
}
SCALING = "scaling=0.9"
GENIE: Rivals = {
    "genie": ("genie", (SCALING,)),
    "genie, sizes=chosen": ("genie", ("sizes=chosen", SCALING)),
    "chronus-paper": ("chronus-paper", (SCALING,)),
    "chronus": ("chronus", (SCALING,)),
    "dlq": ("dlq", (SCALING,)),
}


def _parts(rivals: Rivals, more: Words, seeds: Sequence[int], jobs: int) -> Iterable[Words]:
    for policy, settings in rivals.values():
        for mix in MIX_NAMES:
            for seed in seeds:
                yield {
                    "policy": policy, "settings": list(settings), "mix": mix,
                    "density": DENSITY, "seed": seed, "jobs": jobs, **more,
                }  # fmt: skip


def _table(rivals: Rivals, results: Sequence[Done]) -> Table:
    columns: dict[str, str] = {}
    rows: dict[str, dict[str, Cell]] = {name: {} for name in rivals}
    figures = {"wDMR, %": ("wdmr", 100.0, ".2f"), "BE JCT, h": ("be_jct_h", 1.0, ".1f")}
    for mix in MIX_NAMES:
        for head, (figure, unit, shown) in figures.items():
            if mix == "slo" and figure == "be_jct_h":
                continue
            columns[f"{mix}: {head}"] = shown
            for name, (policy, settings) in rivals.items():
                own = [
                    unit * done.value[figure]
                    for done in results
                    if done.words["mix"] == mix
                    and (done.words["policy"], tuple(done.words["settings"])) == (policy, settings)
                ]
                rows[name][f"{mix}: {head}"] = mean(own)
    return Table(columns, rows)


def _case(
    name: str, section: str, about: str, rivals: Rivals, more: Words, cpu_s: float, full_s: float
) -> Case:
    return Case(
        name=name, page=PAGE, section=section, about=about, rows="policy", run=swept,
        parts=partial(_parts, rivals, more), table=partial(_table, rivals), seeds=SEEDS,
        short=Form(cpu_s=cpu_s, words={"jobs": 150}),
        full=Form(cpu_s=full_s, seeds=3, words={"jobs": 300}), paper=NONE_PRINTED,
        judged_on=DRAWN, fitted_on=DRAWN, in_sample=FITTED,
    )  # fmt: skip


CASES = (
    _case(
        "chronus-3sigma", "3Sigma by its own program",
        f"3Sigma in both forms at a density of {DENSITY} %, with exact run times.",
        THREE_SIGMA, {}, 45, 3600,
    ),
    _case(
        "chronus-genie", "GENIE with its choice of sizes",
        f"Elastic jobs at a density of {DENSITY} %, with exact run times, `{SCALING}`.",
        GENIE, {"elastic": True}, 20, 300,
    ),
)  # fmt: skip
