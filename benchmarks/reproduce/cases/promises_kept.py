"""Promises under wrong estimates: the share of kept ones, and how many were made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from benchmarks.papers.chronus.kept_promises import CHECK, JOBS, NOISES, drawn
from benchmarks.reproduce.case import NONE_PRINTED, Case, Cell, Done, Form, Table, Words
from benchmarks.reproduce.constants import chosen_on

COLUMNS = {
    "with deadlines": ",.0f",
    "promised": ",.0f",
    "broken": ",.0f",
    "kept, %": ".2f",
    "wDMR, %": ".2f",
}


def _parts(seeds: Sequence[int], jobs: int, policies: Sequence[str]) -> Iterable[Words]:
    for policy in policies:
        for noise in NOISES:
            for seed in seeds:
                yield {"seed": seed, "jobs": jobs, "policy": policy, "words": [f"noise={noise}"]}


def _table(results: Sequence[Done]) -> Table:
    by_row: dict[str, list[Done]] = defaultdict(list)
    for done in results:
        noise = done.words["words"][0].removeprefix("noise=")
        by_row[f"`{done.words['policy']}`, error {float(noise):.0%}"].append(done)
    return Table(COLUMNS, {name: _row(of_row) for name, of_row in by_row.items()})


def _row(of_row: Sequence[Done]) -> dict[str, Cell]:
    asked, promised, missed, wdmr = [
        sum(done.value[name] for done in of_row) for name in ("asked", "promised", "missed", "wdmr")
    ]
    kept = 100.0 * (1.0 - missed / promised) if promised else None
    figures = (asked, promised, missed, kept, 100.0 * wdmr / len(of_row))
    return dict(zip(COLUMNS, figures, strict=True))


CASES = (
    Case(
        name="promises-kept",
        page="promises.md",
        section="Promises under wrong estimates",
        about="Jobs of `mix2` at 120 %, whose run times are known after a trial, with an error.",
        rows="policy, standard deviation of estimates",
        run=drawn,
        parts=_parts,
        table=_table,
        seeds=CHECK,
        short=Form(cpu_s=12, words={"jobs": 150, "policies": ["dlq"]}),
        full=Form(cpu_s=900, seeds=3, words={"jobs": JOBS, "policies": ["dlq", "chronus"]}),
        paper=NONE_PRINTED,
        judged_on=("kept-check",),
        fitted_on=chosen_on("dlq"),
    ),
)
