"""Aryl's Tables 5 and 12 on drawn workloads of a tenth of the size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.papers.aryl_cases import JOBS, SEEDS
from benchmarks.papers.aryl_tables import FIFO, METHODS
from benchmarks.reproduce.case import NONE_PRINTED, Case, Done, Figure, Form, Printed, Table, Words
from benchmarks.reproduce.figures.aryl import gains, reclaims
from benchmarks.reproduce.runs.aryl_rows import aryl
from benchmarks.support.means import means

SECTION = "Tables 5 and 12"
CROWDED = "Crowded, "
JCT, QUEUE, LOST = "JCT, FIFO's over it", "queueing, FIFO's over it", "preempted, %"
COLUMNS = {"JCT, s": ",.0f", "queueing, s": ",.0f", JCT: ".2f", QUEUE: ".2f", LOST: ".2f"}
DAMAGE = "GPUs vacated besides, over those asked back"
IN_SAMPLE = "The run times were drawn so that the means of FIFO come out, on these very seeds."
LITTLE = "Little queueing is left for loans and sizes to take away."
SIX = "The six models of Pollux hardly gain from more than 16 to 64 GPUs."
DIFFERS = {
    "Basic, Aryl": LITTLE,
    "Advanced, Aryl": LITTLE,
    "Ideal, Aryl": LITTLE,
    **{
        name: "Hardly any job is on a lent server, so rules are hardly told apart."
        for name in METHODS
        if name.startswith("Loaning") and METHODS[name].paper
    },
    "Scaling, AFS": "AFS has no bounds in the paper; here it has those of the jobs.",
    "Scaling, Aryl": LITTLE,
    "Scaling, Pollux": SIX,
    "Scaling, Aryl+TunedJobs": SIX,
}


def _parts(seeds: Sequence[int], jobs: int, crowded: bool) -> Iterable[Words]:
    for method in METHODS:
        if method.startswith(CROWDED) == crowded:
            for seed in seeds:
                yield {"method": method, "seed": seed, "jobs": jobs}


def _found(results: Sequence[Done]) -> dict[str, dict[str, float]]:
    """Method -> the means over the seeds."""
    names = dict.fromkeys(done.words["method"] for done in results)
    by_name = {
        name: means([done.value for done in results if done.words["method"] == name])
        for name in names
    }
    return {
        name: {figure: value or 0.0 for figure, value in row.items()}
        for name, row in by_name.items()
    }


def _table(results: Sequence[Done]) -> Table:
    found = _found(results)
    base = found["Baseline"]
    rows = {}
    for name, row in found.items():
        rows[name] = {
            "JCT, s": row["avg_jct_s"],
            "queueing, s": row["avg_queue_s"],
            JCT: base["avg_jct_s"] / row["avg_jct_s"],
            QUEUE: base["avg_queue_s"] / max(1e-9, row["avg_queue_s"]),
            LOST: 100 * row["reclaim_preemption_ratio"] if METHODS[name].lends else None,
        }
    return Table(COLUMNS, rows)


def _crowded(results: Sequence[Done]) -> Table:
    rows = {
        name.removeprefix(CROWDED): {
            LOST: 100 * row["reclaim_preemption_ratio"],
            DAMAGE: row["reclaim_collateral_damage"],
        }
        for name, row in _found(results).items()
    }
    return Table({LOST: ".2f", DAMAGE: ".3f"}, rows)


def _paper() -> Printed:
    found = {}
    for name, method in METHODS.items():
        if method.paper is not None and name != "Baseline":
            ratios = {
                JCT: FIFO.jct_s / method.paper.jct_s,
                QUEUE: FIFO.queue_s / method.paper.queue_s,
            }
            lost = method.paper.preempted
            found[name] = ratios if lost is None else {**ratios, LOST: lost}
    return found


CASES = (
    Case(
        name="aryl-tables-5-12",
        page="aryl.md",
        section=SECTION,
        about="Means over the seeds; 5,039 jobs are a tenth of the paper's.",
        rows="method",
        run=aryl,
        parts=_parts,
        table=_table,
        seeds=SEEDS,
        short=Form(90, words={"jobs": JOBS, "crowded": False}),
        full=Form(280, seeds=3, words={"jobs": JOBS, "crowded": False}),
        paper=_paper(),
        judged_on=("aryl-drawn",),
        fitted_on=("aryl-drawn",),
        differs=DIFFERS,
        in_sample=IN_SAMPLE,
        figure=Figure("Gains over FIFO by method.", gains(_table, JCT, QUEUE, _paper())),
    ),
    Case(
        name="aryl-crowded",
        page="aryl.md",
        section=SECTION,
        about="All jobs run on any GPU, and there are 1.35 times as many.",
        rows="`reclaim`",
        run=aryl,
        parts=_parts,
        table=_crowded,
        seeds=SEEDS,
        short=Form(32, words={"jobs": JOBS, "crowded": True}),
        full=Form(160, seeds=3, words={"jobs": JOBS, "crowded": True}),
        paper=NONE_PRINTED,
        figure=Figure("Figure 8 in shape: the rules, by Aryl's.", reclaims(_crowded, LOST, DAMAGE)),
        judged_on=("aryl-drawn",),
        fitted_on=("aryl-drawn",),
        in_sample=IN_SAMPLE,
    ),
)
