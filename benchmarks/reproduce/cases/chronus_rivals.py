"""Chronus' rivals by their own methods: the integer program of 3Sigma beside our simpler form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean

from benchmarks.papers.chronus.sweeps import swept
from benchmarks.papers.deadline_cases import MIX_NAMES, SEEDS
from benchmarks.reproduce.case import NONE_PRINTED, Case, Cell, Done, Form, Table, Words

PAGE = "chronus-rivals.md"
DRAWN = ("chronus-drawn",)
DENSITY = 120
THREE_SIGMA: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "3sigma": ("3sigma", ()),
    "3sigma, plan=program": ("3sigma", ("plan=program",)),
    "edf": ("edf", ()),
    "chronus-paper": ("chronus-paper", ()),
    "chronus": ("chronus", ()),
}


def _parts(seeds: Sequence[int], jobs: int) -> Iterable[Words]:
    for policy, settings in THREE_SIGMA.values():
        for mix in MIX_NAMES:
            for seed in seeds:
                yield {
                    "policy": policy, "settings": list(settings), "mix": mix,
                    "density": DENSITY, "seed": seed, "jobs": jobs,
                }  # fmt: skip


def _table(results: Sequence[Done]) -> Table:
    columns: dict[str, str] = {}
    rows: dict[str, dict[str, Cell]] = {name: {} for name in THREE_SIGMA}
    for mix in MIX_NAMES:
        figures = {"wDMR, %": ("wdmr", 100.0, ".2f"), "BE JCT, h": ("be_jct_h", 1.0, ".1f")}
        for head, (figure, unit, shown) in figures.items():
            if mix == "slo" and figure == "be_jct_h":
                continue
            columns[f"{mix}: {head}"] = shown
            for name, (policy, settings) in THREE_SIGMA.items():
                own = [
                    unit * done.value[figure]
                    for done in results
                    if done.words["mix"] == mix
                    and (done.words["policy"], tuple(done.words["settings"])) == (policy, settings)
                ]
                rows[name][f"{mix}: {head}"] = mean(own)
    return Table(columns, rows)


CASES = (
    Case(
        name="chronus-3sigma",
        page=PAGE,
        section="3Sigma by its own program",
        about=f"3Sigma in both forms at a density of {DENSITY} %, with exact run times.",
        rows="policy",
        run=swept,
        parts=_parts,
        table=_table,
        seeds=SEEDS,
        short=Form(cpu_s=45, words={"jobs": 150}),
        full=Form(cpu_s=3600, seeds=3, words={"jobs": 300}),
        paper=NONE_PRINTED,
        judged_on=DRAWN,
        fitted_on=DRAWN,
        in_sample="Only `chronus` has constants of ours: they were chosen on seed 7501.",
    ),
)
