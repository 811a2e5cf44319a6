"""Tiresias: its released simulator figure by figure, and the claims of the paper."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from benchmarks import ROOT
from benchmarks.reproduce.case import Case, Cell, Done, Form, Printed, Table, Words
from benchmarks.reproduce.runs.replays import TRACES, replayed

REFERENCE = f"{TRACES}/tiresias_reference_results.csv"
HISTORY = "tiresias_yarn-gput1000.csv"
IDEAL = ("place=count", "preempt=free")
LEVELS = "thresholds=3250,7200"
LAS = (*IDEAL, LEVELS)
GITTINS = (*LAS, "quantum=3250", "last=index", f"history={HISTORY}")
SHORTEST = {
    "fifo": "fifo",
    "fjf": "best-effort",
    "sjf": "sf",
    "shortest": "srtf",
    "shortest-gpu": "srsf",
}
CLUSTERS = {8: "2x4", 16: "4x4", 60: "15x4"}
COLUMNS = {
    "avg JCT": ",.2f",
    "median": ",.1f",
    "p95": ",.2f",
    "makespan": ",.0f",
    "preemptions": ",.0f",
}


class Beside(NamedTuple):
    """A row: a run of the released simulator, and ours."""

    trace: str
    gpus: int
    theirs: str
    policy: str
    settings: tuple[str, ...] = IDEAL
    placement: str = "count"
    also: str = ""  # what tells two rows with one run of theirs apart

    @property
    def label(self) -> str:
        """`480 jobs, 60 GPUs: fifo, ours fifo`."""
        count = "480" if self.trace.startswith("own") else "60"
        placed = "" if self.placement == "count" else f", placement `{self.placement}`"
        ours = "" if self.theirs == self.policy else f", ours `{self.policy}`"
        return f"{count} jobs, {self.gpus} GPUs: `{self.theirs}`{placed}{ours}{self.also}"


def _knob(value: int, to: str) -> Beside:
    words = (*LAS, f"promote_knob={value}", f"promote_to={to}")
    return Beside(
        "own_480_job", 60, f"dlas-gpu-{value}", "tiresias-las", words, also=f", to the {to}"
    )


RELEASED = (
    *(Beside("own_480_job", 60, theirs, ours) for theirs, ours in SHORTEST.items()),
    Beside("own_480_job", 60, "dlas-gpu", "tiresias-las", LAS),
    *(_knob(value, to) for value in (1, 8) for to in ("tail", "head")),
    Beside("own_480_job", 60, "dlas-gpu-gittins", "tiresias-gittins", GITTINS),
    Beside("own_480_job", 60, "fifo", "fifo", (), "yarn"),
    Beside("own_480_job", 60, "fjf", "best-effort", (), "yarn"),
    *(
        Beside("tiresias_60_job", gpus, theirs, ours, LAS if theirs == "dlas-gpu" else IDEAL)
        for gpus in (8, 16)
        for theirs, ours in {**SHORTEST, "dlas-gpu": "tiresias-las"}.items()
    ),
)  # fmt: skip
LATE = "The released program demotes wide jobs late: note 1."
HEAD = "A starved job goes to the head, and GPUs are kept for it: note 5."
DIFFERS = {
    _knob(1, "tail").label: LATE,
    _knob(8, "tail").label: LATE,
    _knob(1, "head").label: HEAD,
    _knob(8, "head").label: HEAD,
    RELEASED[5].label: LATE,
    RELEASED[10].label: "Its index divides by another mean: note 2.",
    RELEASED[11].label: "Ties between nodes: note 3.",
    RELEASED[12].label: "Ties between nodes: note 3.",
    "60 jobs, 16 GPUs: `shortest-gpu`, ours `srsf`": "One tie between two jobs: note 4.",
}


def _parts(_seeds: Sequence[int]) -> Iterable[Words]:
    for row in RELEASED:
        yield _words(row)


def _words(row: Beside) -> Words:
    return {
        "trace": f"{TRACES}/{row.trace}.csv",
        "cluster": CLUSTERS[row.gpus],
        "policy": row.policy,
        "settings": list(row.settings),
    }


def _theirs() -> Printed:
    with (ROOT / REFERENCE).open(newline="") as file:
        lines = [line for line in csv.reader(file) if line[1].isdigit()]
    runs = {(line[0], int(line[1]), line[2], line[3]): line[5:] for line in lines}
    return {
        row.label: _figures(runs[row.trace, row.gpus, row.theirs, row.placement])
        for row in RELEASED
    }


def _figures(line: Sequence[str]) -> Mapping[str, float]:
    average, median, p95, _, _, makespan, preemptions = map(float, line)
    return dict(zip(COLUMNS, (average, median, p95, makespan, preemptions), strict=True))


def _released(results: Sequence[Done]) -> Table:
    rows = {}
    for row, done in zip(RELEASED, results, strict=True):
        found = done.value
        values = (
            found["avg_jct_s"], found["median_jct_s"], found["p95_jct_s"],
            found["makespan_s"], found["preemptions"],
        )  # fmt: skip
        rows[row.label] = dict(zip(COLUMNS, values, strict=True))
    return Table(COLUMNS, rows)


class Claim(NamedTuple):
    """A claim of the paper: a policy's figure over another's, ideal or with all costs; or the
    number of preemptions of the first.
    """

    policy: str
    over: str
    ideal: bool
    figures: tuple[float | None, ...]  # average, median, 95th percentile, makespan


LAS_L, LAS_G = "tiresias-las", "tiresias-gittins"
RATIOS = ("avg JCT", "median", "p95", "makespan")
METRICS = ("avg_jct_s", "median_jct_s", "p95_jct_s", "makespan_s")
CLAIMS = {
    "testbed: YARN-CS / L": Claim("fifo", LAS_L, False, (5.5, 27, None, 33270 / 27400)),
    "simulator: YARN-CS / L": Claim("fifo", LAS_L, True, (5.11, None, None, None)),
    "simulator: SRTF / L": Claim("srtf", LAS_L, True, (0.74, None, None, None)),
    "simulator: G / L": Claim(LAS_G, LAS_L, True, (1.01, None, None, None)),
    "simulator: SF / SRSF": Claim("sf", "srsf", True, (1.52, 1.20, 3.45, None)),
    "simulator: SRTF / SRSF": Claim("srtf", "srsf", True, (1.03, 1.01, 1.55, None)),
}
PREEMPTIONS = {LAS_L: 221.0, LAS_G: 297.0, "srtf": 316.0}
JOB_LIST = "The list of jobs is another: theirs is not shipped, and the load makes the ratio."


def _run(policy: str, ideal: bool) -> Words:
    history = (f"history={HISTORY}",) if policy == LAS_G else ()
    return {
        "trace": f"{TRACES}/own_480_job.csv",
        "cluster": CLUSTERS[60],
        "policy": policy,
        "settings": [*(IDEAL if ideal else ()), *history],
    }


def _claimed(_seeds: Sequence[int]) -> Iterable[Words]:
    pairs = [(name, one.ideal) for one in CLAIMS.values() for name in (one.policy, one.over)]
    for policy, ideal in dict.fromkeys([*pairs, *((name, False) for name in PREEMPTIONS)]):
        yield _run(policy, ideal)


def _found(results: Sequence[Done], policy: str, ideal: bool) -> Mapping[str, float]:
    return next(done.value for done in results if done.words == _run(policy, ideal))


def _claims(results: Sequence[Done]) -> Table:
    rows: dict[str, dict[str, Cell]] = {}
    for name, claim in CLAIMS.items():
        own = _found(results, claim.policy, claim.ideal)
        base = _found(results, claim.over, claim.ideal)
        rows[name] = {
            head: own[metric] / base[metric] for head, metric in zip(RATIOS, METRICS, strict=True)
        }
    for policy in PREEMPTIONS:
        count = _found(results, policy, False)["preemptions"]
        rows[f"testbed: `{policy}`"] = {"preemptions": count}
    return Table({**dict.fromkeys(RATIOS, ".2f"), "preemptions": ",.0f"}, rows)


def _printed_claims() -> Printed:
    found = {
        name: {
            head: value
            for head, value in zip(RATIOS, claim.figures, strict=True)
            if value is not None
        }
        for name, claim in CLAIMS.items()
    }
    counts = {f"testbed: `{name}`": {"preemptions": value} for name, value in PREEMPTIONS.items()}
    return {**found, **counts}


CASES = (
    Case(
        name="tiresias-released",
        page="tiresias.md",
        section="The Tiresias simulator, figure by figure",
        about="Seconds; ours is `dlq simulate` with `place=count` and `preempt=free`.",
        rows="jobs, GPUs, run",
        run=replayed,
        parts=_parts,
        table=_released,
        seeds=(0,),
        short=Form(cpu_s=5),
        full=Form(cpu_s=5),
        paper=_theirs(),
        judged_on=("own-480", "tiresias-60"),
        fitted_on=(),
        beside="released",
        inputs=(
            f"{TRACES}/own_480_job.csv",
            f"{TRACES}/tiresias_60_job.csv",
            f"{TRACES}/{HISTORY}",
        ),
        differs=DIFFERS,
    ),
    Case(
        name="tiresias-claims",
        page="tiresias.md",
        section="What Tiresias claims",
        about="Ratios of completion times on `own_480_job`, 60 GPUs; YARN-CS is `fifo`.",
        rows="claim",
        run=replayed,
        parts=_claimed,
        table=_claims,
        seeds=(0,),
        short=Form(cpu_s=3),
        full=Form(cpu_s=3),
        paper=_printed_claims(),
        judged_on=("own-480",),
        fitted_on=(),
        inputs=(f"{TRACES}/own_480_job.csv", f"{TRACES}/{HISTORY}"),
        differs={
            **dict.fromkeys([name for name in CLAIMS if "G /" not in name], JOB_LIST),
            **{
                f"testbed: `{name}`": "Work is taken away at boundaries of 300 s only."
                for name in PREEMPTIONS
            },
        },
    ),
)
