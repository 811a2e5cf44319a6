"""Promises: trials of unknown jobs before anything is promised."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.papers.deadline_cases import SEEDS
from benchmarks.papers.profiling import CHOICES
from benchmarks.reproduce.case import Case, Cell, Done, Form, Table, Words
from benchmarks.reproduce.constants import chosen_on
from benchmarks.reproduce.runs.trial_rows import trials
from benchmarks.support.means import means

ROWS = (
    *(("chronus-paper", words) for words in CHOICES),
    *(("chronus", (f"noise={noise}",)) for noise in (0, 0.2, 0.4)),
)
COLUMNS = {
    "mean pending, s": ",.0f",
    "longest, s": ",.0f",
    "longest, let in, s": ",.0f",
    "wDMR, %": ".1f",
    "promises broken": "",
}


def _label(policy: str, words: Sequence[str]) -> str:
    return f"`{policy}`, `{' '.join(words)}`"


def _parts(seeds: Sequence[int], jobs: int) -> Iterable[Words]:
    for policy, words in ROWS:
        for seed in seeds:
            yield {"policy": policy, "settings": list(words), "seed": seed, "jobs": jobs}


def _table(results: Sequence[Done]) -> Table:
    rows: dict[str, dict[str, Cell]] = {}
    for policy, words in ROWS:
        own = [
            done.value
            for done in results
            if (done.words["policy"], tuple(done.words["settings"])) == (policy, words)
        ]
        found = means(own)
        broken = sum(value["missed"] for value in own)
        rows[_label(policy, words)] = {
            "mean pending, s": found["mean_s"],
            "longest, s": max(value["longest_s"] for value in own),
            "longest, let in, s": max(value["let_in_s"] for value in own),
            "wDMR, %": 100 * (found["wdmr"] or 0.0),
            "promises broken": f"{broken} of {sum(value['promised'] for value in own)}",
        }
    return Table(COLUMNS, rows)


CASES = (
    Case(
        name="promises-trials",
        page="promises.md",
        section="Profiling before promises",
        about="Long and short jobs, profiled before anything is promised, on 12 nodes of 8.",
        rows="policy, settings",
        run=trials,
        parts=_parts,
        table=_table,
        seeds=SEEDS,
        short=Form(20, words={"jobs": 150}),
        full=Form(240, seeds=3, words={"jobs": 300}),
        judged_on=("chronus-drawn",),
        fitted_on=chosen_on("chronus"),
        in_sample="The constants of `chronus` were chosen on seed 7501.",
        paper={_label(*ROWS[0]): {"mean pending, s": 32.0, "wDMR, %": 5.0}},
        differs={_label(*ROWS[0]): "The paper has 96 nodes and other traces."},
    ),
)
