"""Aryl's Figures 10, 13 and 14 and its Table 6 in shape, on the workload of Tables 5 and 12."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from benchmarks.papers.aryl_cases import JOBS, SEEDS
from benchmarks.papers.aryl_tables import FIFO
from benchmarks.reproduce.case import (
    NONE_PRINTED,
    Case,
    Cell,
    Done,
    Figure,
    Form,
    Printed,
    Table,
    Words,
)
from benchmarks.reproduce.figures.aryl import gains, shares
from benchmarks.reproduce.runs.aryl_elastic import (
    BASELINE,
    BASES,
    EVERY,
    RIVALS,
    SHARES,
    VARIANTS,
    aryl_varied,
    elastic_row,
    variant_row,
)
from benchmarks.support.means import means

PAGE, SECTION = "aryl.md", "Elastic jobs, their scaling and their places"
JCT, QUEUE, LOST = "JCT, FIFO's over it", "queueing, FIFO's over it", "preempted, %"
COLUMNS = {"JCT, s": ",.0f", "queueing, s": ",.0f", JCT: ".2f", QUEUE: ".2f", LOST: ".2f"}
SHARED = tuple(elastic_row(rival, share) for share in SHARES for rival in RIVALS)
VARIED = tuple(
    name for base in BASES for name in (base, *(variant_row(base, one) for one in VARIANTS))
)
BASIC, IDEAL = BASES
ORDER = "The order takes the queueing away, and leaves little to elastic jobs."
# Of the text on Figure 10, and Table 6.
PAPER: Printed = {
    variant_row(BASIC, "imperfect"): {
        JCT: FIFO.jct_s / (1.12 * 11089),
        QUEUE: FIFO.queue_s / (1.04 * 2008),
    },
    variant_row(IDEAL, "imperfect"): {JCT: FIFO.jct_s / 10564},
    variant_row(BASIC, "not grouped"): {
        JCT: FIFO.jct_s / 13864,
        QUEUE: FIFO.queue_s / 2231,
        LOST: 12.56,
    },
    variant_row(IDEAL, "not grouped"): {
        JCT: FIFO.jct_s / 9751,
        QUEUE: FIFO.queue_s / 1257,
        LOST: 11.89,
    },
}


def _parts(names: Sequence[str], seeds: Sequence[int], jobs: int) -> Iterable[Words]:
    for method in (BASELINE, *names):
        for seed in seeds:
            yield {"method": method, "seed": seed, "jobs": jobs}


def _table(names: Sequence[str], results: Sequence[Done]) -> Table:
    """Means over the seeds."""
    found = {
        name: means([done.value for done in results if done.words["method"] == name])
        for name in (BASELINE, *names)
    }
    base_jct_s, base_queue_s = found[BASELINE]["jct_s"] or 0.0, found[BASELINE]["queue_s"] or 0.0
    rows: dict[str, dict[str, Cell]] = {}
    for name in names:
        jct_s, queue_s = found[name]["jct_s"] or 0.0, found[name]["queue_s"] or 0.0
        rows[name] = {
            "JCT, s": jct_s,
            "queueing, s": queue_s,
            JCT: base_jct_s / max(1e-9, jct_s),
            QUEUE: base_queue_s / max(1e-9, queue_s),
            LOST: found[name]["preempted"] if EVERY[name].lends else None,
        }
    return Table(COLUMNS, rows)


def _case(
    name: str, about: str, names: Sequence[str], paper: Printed, cpu_s: float, figure: Figure
) -> Case:
    return Case(
        name=name,
        page=PAGE,
        section=SECTION,
        about=about,
        rows="method",
        run=aryl_varied,
        parts=partial(_parts, names),
        table=partial(_table, names),
        seeds=SEEDS,
        short=Form(cpu_s, words={"jobs": JOBS}),
        full=Form(3 * cpu_s, seeds=3, words={"jobs": JOBS}),
        paper=paper,
        judged_on=("aryl-drawn",),
        fitted_on=("aryl-drawn",),
        differs=dict.fromkeys(paper, ORDER),
        in_sample="The run times were drawn so that the means of FIFO come out, on these seeds.",
        figure=figure,
    )


CASES = (
    _case(
        "aryl-elastic-share",
        "Figures 13 and 14 in shape, without loans, by the share of elastic jobs.",
        SHARED,
        NONE_PRINTED,
        150,
        Figure(
            "Gains over FIFO by the share of elastic jobs.",
            shares(partial(_table, SHARED), [*RIVALS], JCT, QUEUE),
        ),
    ),
    _case(
        "aryl-variants",
        "Figure 10 (imperfect scaling) and Table 6 (flexible workers are not grouped).",
        VARIED,
        PAPER,
        70,
        Figure(
            "Gains over FIFO where scaling is imperfect or workers are not grouped.",
            gains(partial(_table, VARIED), JCT, QUEUE, PAPER),
        ),
    ),
)
