"""Every preset on every workload: the default beside the best of them, in 51 cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from benchmarks.papers.matrix_cases import CELLS, JOBS, SEEDS
from benchmarks.papers.matrix_tables import Judged, best_words, own_words, verdict_words
from benchmarks.papers.matrix_verdicts import (
    COST,
    JCT,
    OWN_RATIO,
    RATIO,
    WDMR,
    Ran,
    Row,
    own_verdict,
    verdicts,
)
from benchmarks.reproduce.case import NONE_PRINTED, Case, Cell, Done, Form, Table, Words
from benchmarks.reproduce.constants import chosen_on
from benchmarks.reproduce.runs.matrix_cells import EVERY, KNOWS, Task, columns, replayed, tasks

DEFAULT = "dlq"
PAGE = "every-preset.md"
AVERAGE, BEST_AVERAGE = "avg JCT of `dlq`, s", "the best avg JCT"
MISSES, BEST_MISSES = "wDMR, %", "the best wDMR"
OTHERS, BILL, BEST_BILL = "BE JCT, s", "cost", "the best cost"
PROMISES, VERDICT, OWN = "promises missed", "verdict", "own metric"
COLUMNS = {
    AVERAGE: ",.0f",
    BEST_AVERAGE: "",
    MISSES: ".2f",
    BEST_MISSES: "",
    OTHERS: ",.0f",
    BILL: ",.0f",
    BEST_BILL: "",
    PROMISES: "",
    VERDICT: "",
    OWN: "",
}
GOALS = "goals met"
COUNTS = {"cells": ",.0f", GOALS: ",.0f", "worst": ""}


def _parts(seeds: Sequence[int], jobs: int) -> Iterable[Words]:
    for cell in CELLS:
        for task in tasks(cell, EVERY, seeds, jobs):
            yield {name: value for name, value in task._asdict().items() if name != "words"}


def _judged(results: Sequence[Done]) -> Iterator[tuple[str, Row, Judged]]:
    """Each cell with the figures of all presets, and the verdicts on the default."""
    for cell in CELLS:
        own = [done for done in results if done.words["cell"] == cell]
        asked = [Task(**done.words) for done in own]
        rans = [done.value if isinstance(done.value, str) else Ran(**done.value) for done in own]
        for know, row in columns(asked, rans, KNOWS, lambda _left_out: None).items():
            found = verdicts(row, DEFAULT, mixed=CELLS[cell].mixed)
            verdict = own_verdict(row, DEFAULT, CELLS[cell].metric)
            yield f"{cell}, {know}", row, Judged(found, verdict)


def _matrix(results: Sequence[Done]) -> Table:
    judged = [one for one in _judged(results) if DEFAULT in one[1]]
    return Table(COLUMNS, {name: _row(row[DEFAULT], cell) for name, row, cell in judged})


def _row(own: Ran, judged: Judged) -> dict[str, Cell]:
    by_asked = {verdict.asked: verdict for verdict in judged.found}
    promises = None
    if own.guaranteed is not None and own.wdmr is not None:
        promises = f"{own.missed:g} of {own.guaranteed:g}"
    return {
        AVERAGE: own.avg_jct_s,
        BEST_AVERAGE: best_words(by_asked.get(JCT)),
        MISSES: None if own.wdmr is None else 100 * own.wdmr,
        BEST_MISSES: best_words(by_asked.get(WDMR)),
        OTHERS: None if own.wdmr is None else own.be_jct_s,
        BILL: own.cost,
        BEST_BILL: best_words(by_asked.get(COST)),
        PROMISES: promises,
        VERDICT: verdict_words(judged.found),
        OWN: own_words(judged.own),
    }


def _summary(results: Sequence[Done]) -> Table:
    judged = [(name, cell) for name, row, cell in _judged(results) if DEFAULT in row]
    cells = [(name, cell.found) for name, cell in judged]
    rows: dict[str, dict[str, Cell]] = {}
    for asked in (JCT, WDMR, COST):
        having = [(name, one) for name, found in cells for one in found if one.asked == asked]
        if having:
            name, worst = max(having, key=lambda pair: pair[1].over)
            shown = f"{100 * worst.over:+.2f} points" if asked == WDMR else f"{worst.over:.2f} x"
            kept = sum(one.ok for _, one in having)
            rows[asked] = {"cells": len(having), GOALS: kept, "worst": f"{shown}, {name}"}
    whole = sum(all(one.ok for one in found) for _, found in cells)
    rows[f"all of these, within {RATIO:g}"] = {"cells": len(cells), GOALS: whole, "worst": None}
    owns = [cell.own for _, cell in judged if cell.own is not None]
    met = sum(one.ok for one in owns)
    rows[f"own metric, within {OWN_RATIO:g}"] = {"cells": len(owns), GOALS: met, "worst": None}
    return Table(COUNTS, rows)


IN_SAMPLE = "Orders and guards of `dlq` were compared on them; no other preset was."
SHORT = Form(cpu_s=240, words={"jobs": 240})
FULL = Form(cpu_s=1800, seeds=3, words={"jobs": JOBS})

CASES = (
    Case(
        name="every-preset-summary",
        page=PAGE,
        section="The default beside them",
        about="Cells in which `dlq` is within reach of the best preset, by figure.",
        rows="figure",
        run=replayed,
        parts=_parts,
        table=_summary,
        seeds=SEEDS,
        short=SHORT,
        full=FULL,
        paper=NONE_PRINTED,
        judged_on=("matrix",),
        fitted_on=chosen_on(DEFAULT),
        in_sample=IN_SAMPLE,
    ),
    Case(
        name="every-preset-matrix",
        page=PAGE,
        section="The default beside them",
        about="`dlq` beside the best of all presets. The whole form draws 400 jobs a workload.",
        rows="workload, run times",
        run=replayed,
        parts=_parts,
        table=_matrix,
        seeds=SEEDS,
        short=SHORT,
        full=FULL,
        paper=NONE_PRINTED,
        judged_on=("matrix",),
        fitted_on=chosen_on(DEFAULT),
        in_sample=IN_SAMPLE,
    ),
)
