"""Chronus' rivals by their own methods: the program of 3Sigma, and the sizes of GENIE."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from statistics import mean

from benchmarks.papers.chronus import released
from benchmarks.papers.chronus.sweeps import swept
from benchmarks.papers.deadline_cases import MIX_NAMES, SEEDS
from benchmarks.reproduce.case import NONE_PRINTED, Case, Cell, Done, Form, Table, Words

PAGE = "chronus-rivals.md"
DRAWN = ("chronus-drawn",)
DENSITY = 120
SHORT_DAYS = {"first": 4.5, "last": 7.0}  # of two weeks, the first with much work
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


# The program of `chronus-paper` gets an eighth of its time, to bound the replay.
RELEASED: Rivals = {name: (name, ()) for name in released.POLICIES} | {
    "chronus-paper": ("chronus-paper", ("solver_s=0.5",))
}


def _released_parts(seeds: Sequence[int], first: float, last: float) -> Iterable[Words]:
    for policy, settings in RELEASED.values():
        for workload in released.WORKLOADS:
            yield {
                "workload": workload, "policy": policy, "settings": list(settings),
                "first": first, "last": last,
            }  # fmt: skip


def _released(results: Sequence[Done]) -> Table:
    columns: dict[str, str] = {}
    rows: dict[str, dict[str, Cell]] = {name: {} for name in RELEASED}
    for workload in released.WORKLOADS:
        columns[f"{workload}: wDMR, %"] = ".2f"
        if workload != "P_SLO":
            columns[f"{workload}: BE JCT, h"] = ".1f"
    for done in results:
        row, workload = rows[done.words["policy"]], done.words["workload"]
        row[f"{workload}: wDMR, %"] = 100.0 * done.value["wdmr"]
        if workload != "P_SLO":
            row[f"{workload}: BE JCT, h"] = done.value["be_jct_h"]
    return Table(columns, rows)


CASES = (
    _case(
        "chronus-3sigma", "3Sigma by its own program",
        f"3Sigma in both forms at a density of {DENSITY} %, with exact run times.",
        THREE_SIGMA, {}, 45, 1800,
    ),
    _case(
        "chronus-genie", "GENIE with its choice of sizes",
        f"Elastic jobs at a density of {DENSITY} %, with exact run times, `{SCALING}`.",
        GENIE, {"elastic": True}, 20, 300,
    ),
    Case(
        name="chronus-released", page=PAGE, section="P_SLO, P_MIX1 and P_MIX2 (Figure 9)",
        about="Every twentieth row of the released workloads, on a twentieth of 960 GPUs (6x8).",
        rows="policy", run=released.thinned, parts=_released_parts, table=_released, seeds=(0,),
        short=Form(cpu_s=32, words=SHORT_DAYS),
        full=Form(cpu_s=2400, words={"first": 0.0, "last": released.DAYS}), paper=NONE_PRINTED,
        judged_on=("chronus-released",), fitted_on=DRAWN,
        inputs=(released.SLO_FILE, released.MIX2_FILE),
    ),
)  # fmt: skip
