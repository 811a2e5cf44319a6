"""The guards of the default against thrashing: their cost and gain on each workload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from benchmarks.papers.matrix_cases import CELLS, JOBS, SEEDS
from benchmarks.papers.matrix_verdicts import Ran
from benchmarks.reproduce.case import NONE_PRINTED, Case, Cell, Done, Form, Table, Words
from benchmarks.reproduce.constants import chosen_on
from benchmarks.reproduce.runs.matrix_cells import replayed, tasks
from benchmarks.support.means import mean_row

DEFAULT = "dlq"
BARE = f"{DEFAULT} min_run=off hysteresis=off max_preemptions=off aging=off"
KNOWS = ("known", "unknown")
WITHOUT, WITH, OVER = "avg JCT without, s", "with, s", "with over without"
WDMR, BE = "wDMR, %: without, with", "BE JCT, s: without, with"
COLUMNS: Mapping[str, str] = {WITHOUT: ",.0f", WITH: ",.0f", OVER: ".3f", WDMR: "", BE: ""}
OWN_NODES = tuple(name for name in CELLS if not name.startswith(("gpuaas", "kept")))


def _parts(seeds: Sequence[int], jobs: int) -> Iterable[Words]:
    for cell in OWN_NODES:
        for task in tasks(cell, (DEFAULT, BARE), seeds, jobs, KNOWS):
            yield {name: value for name, value in task._asdict().items() if name != "words"}


def _table(results: Sequence[Done]) -> Table:
    """Means over the seeds."""
    found: dict[tuple[str, str, str], list[Ran]] = {}
    for done in results:
        if not isinstance(done.value, str):
            asked = done.words["cell"], done.words["know"], done.words["contender"]
            found.setdefault(asked, []).append(Ran(**done.value))
    rows: dict[str, dict[str, Cell]] = {}
    for cell, know, contender in found:
        if contender == DEFAULT and (cell, know, BARE) in found:
            guarded, bare = (mean_row(found[cell, know, name]) for name in (DEFAULT, BARE))
            rows[f"{cell}, {know}"] = _row(bare, guarded)
    return Table(COLUMNS, rows)


def _row(bare: Ran, guarded: Ran) -> dict[str, Cell]:
    row: dict[str, Cell] = {
        WITHOUT: bare.avg_jct_s,
        WITH: guarded.avg_jct_s,
        OVER: guarded.avg_jct_s / bare.avg_jct_s,
    }
    if bare.wdmr is not None and guarded.wdmr is not None:
        row[WDMR] = f"{100 * bare.wdmr:.2f}, {100 * guarded.wdmr:.2f}"
        if bare.be_jct_s is not None and guarded.be_jct_s is not None:
            row[BE] = f"{bare.be_jct_s:,.0f}, {guarded.be_jct_s:,.0f}"
    return row


CASES = (
    Case(
        name="every-preset-guards",
        page="every-preset.md",
        section="The cost of the guards",
        about="`dlq` without its guards and with them, at 60 s a preemption.",
        rows="workload, run times",
        run=replayed,
        parts=_parts,
        table=_table,
        seeds=SEEDS,
        short=Form(cpu_s=35, words={"jobs": 240}),
        full=Form(cpu_s=300, seeds=3, words={"jobs": JOBS}),
        paper=NONE_PRINTED,
        judged_on=("matrix",),
        fitted_on=chosen_on(DEFAULT),
        in_sample="The guards were chosen on these very workloads.",
    ),
)
