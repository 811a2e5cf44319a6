"""Pollux' own four workloads with tuned jobs, beside what the authors' simulator stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from benchmarks.reproduce.case import Case, Cell, Done, Form, Printed, Table, Words
from benchmarks.reproduce.runs.tuned_rows import WORKLOAD, pollux_workload
from benchmarks.support.means import means

NUMBERS = (1, 2, 3, 4)
COLUMNS = {number: f"workload {number}" for number in NUMBERS}
RESIZES, MEAN = "resizes", "mean"


class Way(NamedTuple):
    """A row: a policy, and whether jobs are tuned."""

    policy: str
    tuned: bool


WAYS = {
    "Pollux": Way("pollux", True),
    "AFS+TunedJobs": Way("afs", True),
    "Aryl+TunedJobs": Way("aryl", True),
    "dlq+TunedJobs": Way("dlq", True),
    "Gandiva+TunedJobs": Way("gandiva-elastic", True),
    "dlq": Way("dlq", False),
    "Tiresias": Way("tiresias-las", False),
}
# `simulator/results-jobload/{pollux,tiresias}-1.0/summary.json` of petuum/adaptdl, osdi21-artifact.
STORED: Printed = {
    "Pollux": {"workload 1": 2089, "workload 2": 3323, "workload 3": 2188, "workload 4": 2721},
    "Tiresias": {"workload 1": 2474, "workload 2": 5145, "workload 3": 3876, "workload 4": 3280},
}
DIFFERS = {
    "Pollux": "The noise is constant here; theirs rises, and the genetic search is drawn.",
    "Tiresias": "Step times and efficiency are fitted here and measured there; not examined more.",
}


def _parts(seeds: Sequence[int]) -> Iterable[Words]:
    for way in WAYS.values():
        for number in NUMBERS:
            yield {"policy": way.policy, "tuned": way.tuned, "number": number}


def _table(results: Sequence[Done]) -> Table:
    rows: dict[str, dict[str, Cell]] = {}
    for name, way in WAYS.items():
        mine = {
            done.words["number"]: done.value
            for done in results
            if (done.words["policy"], done.words["tuned"]) == way
        }
        every = means([*mine.values()])
        rows[name] = {COLUMNS[number]: mine[number]["jct_s"] for number in NUMBERS}
        rows[name] |= {MEAN: every["jct_s"], RESIZES: every["resizes"] if way.tuned else None}
    return Table({**dict.fromkeys(COLUMNS.values(), ",.0f"), MEAN: ",.0f", RESIZES: ",.0f"}, rows)


CASES = (
    Case(
        name="pollux-workloads",
        page="aryl-tuned.md",
        section="Tuned jobs and Pollux",
        about=(
            "Mean completion times in seconds: 160 jobs on 16 nodes of 4 GPUs. Pollux, Gandiva and "
            "Tiresias are told no run times."
        ),
        rows="method",
        run=pollux_workload,
        parts=_parts,
        table=_table,
        seeds=(0,),
        short=Form(40),
        full=Form(40),
        paper=STORED,
        beside="the authors' simulator",
        judged_on=("pollux-files",),
        fitted_on=(),
        inputs=tuple(WORKLOAD.format(number) for number in NUMBERS),
        differs=DIFFERS,
    ),
)
