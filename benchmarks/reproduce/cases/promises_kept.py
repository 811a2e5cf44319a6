"""Promises under wrong estimates: the share of kept ones, and how many were made; and the same on
workloads that were audited from outside.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from benchmarks.papers.chronus.audited import FILES, WORKLOADS, audited
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


# The `noise` of estimates by trials is 0.2, the default.
KNOWS = {"known": "exact", "profiled": "by trials", "unknown": "unknown"}
BEFORE = ("dlq", "known", "select=guaranteed")  # no slots at a last chance
WHO = (
    BEFORE,
    *((policy, know) for know in ("known", "profiled") for policy in ("dlq", "chronus")),
    ("dlq", "unknown"),
    ("srtf", "known"),
)
SHORT_WHO = (BEFORE, ("dlq", "known"), ("chronus", "known"), ("dlq", "profiled"))
AUDITED_COLUMNS = {
    **COLUMNS,
    "avg JCT, s": ",.0f",
    "BE JCT, s": ",.0f",
}

# From promises alone to slots for many jobs with a deadline: best effort pays for these.
FRONTIER = (
    ("dlq", "select=guaranteed"),
    ("dlq", "slo_term_s=1200"),
    ("dlq", ""),
    ("chronus", ""),
)
FULL_FRONTIER = (*FRONTIER, ("dlq", "select=all"))
FRONTIER_OF = {"MIX1, steady": None, "Philly": 700}  # so many jobs; None: all


def _frontier_parts(
    _: Sequence[int], of: dict[str, int | None], who: Sequence[tuple[str, str]]
) -> Iterable[Words]:
    for name, jobs in of.items():
        for policy, words in who:
            settings = ["know=known", *words.split()]
            yield {"name": name, "policy": policy, "settings": settings, "jobs": jobs}


def _audited_parts(
    _: Sequence[int], who: Sequence[tuple[str, ...]], jobs: int | None = None
) -> Iterable[Words]:
    for name in WORKLOADS:
        for policy, know, *more in who:
            settings = [f"know={know}", *more]
            yield {"name": name, "policy": policy, "settings": settings, "jobs": jobs}


def _audited_table(results: Sequence[Done]) -> Table:
    rows = {}
    for words, value in results:
        first, *more = words["settings"]
        told = ", ".join([f"`{words['policy']}`", KNOWS[first.removeprefix("know=")], *more])
        rows[f"{words['name']}: {told}"] = _audited_row(value)
    return Table(AUDITED_COLUMNS, rows)


def _audited_row(value: dict[str, float]) -> dict[str, Cell]:
    promised, missed = value["promised"], value["missed"]
    figures = (
        value["asked"],
        promised,
        missed,
        100.0 * (1.0 - missed / promised) if promised else None,
        100.0 * value["wdmr"],
        value["avg_jct_s"],
        value["be_avg_jct_s"],
    )
    return dict(zip(AUDITED_COLUMNS, figures, strict=True))


CASES = (
    Case(
        name="promises-frontier",
        page="promises.md",
        section="The price of deadlines",
        about="All of MIX1, steady, and a part of Philly; run times are exact.",
        rows="workload, policy, run times",
        run=audited,
        parts=_frontier_parts,
        table=_audited_table,
        seeds=(4242,),
        short=Form(cpu_s=85, words={"of": FRONTIER_OF, "who": FRONTIER}),
        full=Form(cpu_s=600, words={"of": dict.fromkeys(FRONTIER_OF), "who": FULL_FRONTIER}),
        paper=NONE_PRINTED,
        judged_on=("audited",),
        fitted_on=("kept-fitted", "chronus-drawn", "matrix", "chances-fitted", "audited"),
        inputs=FILES,
        in_sample=(
            "Why `dlq` misses more than `chronus` was looked for on these jobs; the remedies "
            "were chosen on others."
        ),
    ),
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
    Case(
        name="promises-audited",
        page="promises.md",
        section="Workloads of an audit",
        about="Run times are exact, or known after a trial with an error of 20 %, or unknown.",
        rows="workload, policy, run times",
        run=audited,
        parts=_audited_parts,
        table=_audited_table,
        seeds=(4242,),
        short=Form(cpu_s=25, words={"who": SHORT_WHO, "jobs": 700}),
        full=Form(cpu_s=360, words={"who": WHO}),
        paper=NONE_PRINTED,
        judged_on=("audited",),
        fitted_on=("kept-fitted", "chronus-drawn", "matrix", "chances-fitted", "audited"),
        inputs=FILES,
        in_sample=(
            "The margin of 0.5 before errors are known was found on these jobs. So was the rule "
            "that history is a guess for a far deadline. The order before a trial was an idea "
            "of the audit on Philly, and was chosen on other days of it. Why `dlq` misses "
            "more than `chronus` was looked for on these jobs; the remedy was chosen on others."
        ),
    ),
)
