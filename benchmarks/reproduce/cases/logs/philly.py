"""The Philly log: claims of Tiresias, decisions at any event, and jobs per CPU second."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from benchmarks.reproduce.case import NONE_PRINTED, Case, Cell, Done, Form, Printed, Table, Words
from benchmarks.reproduce.constants import chosen_on
from benchmarks.reproduce.runs.logs.log_replays import on_log
from benchmarks.reproduce.runs.logs.unseen import unseen

LOG, LAS = "philly", "tiresias-las"
RATIOS = ("avg", "median", "p95")
CLAIMS: Printed = {
    "YARN-CS / L": {"avg": 2.41, "median": 30.85, "p95": 1.25},
    "best-effort / L": {"avg": 1.50, "median": 9.03, "p95": 1.08},
    "SRTF / L": {"avg": 1.00, "median": 1.00, "p95": 0.84},
}
POLICIES = {"YARN-CS / L": "fifo", "best-effort / L": "best-effort", "SRTF / L": "srtf"}
DIFFERS = dict.fromkeys(CLAIMS, "Another stretch of the log, and another load: see below.")
AT_ONCE: Mapping[str, tuple[str, ...]] = {
    "boundaries (default)": (),
    "`preempt=at-once`": ("preempt=at-once",),
    "the same, `min_run=3`": ("preempt=at-once", "min_run=3"),
    "the same, `min_run=10`": ("preempt=at-once", "min_run=10"),
}
TIMED = ("fifo", "best-effort", LAS, "tiresias-gittins", "sf", "srtf", "srsf", "dlq")
GOALS = {"fifo": 5000.0, LAS: 2000.0}
ANY_POLICY = 500.0
SPLITS = 4
WHOLE, SAMPLE = {"whole": True}, {"whole": False}


def _replay(cluster: str, whole: bool, policy: str, settings: Sequence[str] = ()) -> Words:
    return {
        "log": LOG,
        "whole": whole,
        "cluster": cluster,
        "policy": policy,
        "settings": list(settings),
    }


def _claims(_seeds: Sequence[int], cluster: str, whole: bool) -> Iterable[Words]:
    for policy in (LAS, *POLICIES.values()):
        yield _replay(cluster, whole, policy)


def _claimed(results: Sequence[Done]) -> Table:
    found = {done.words["policy"]: done.value for done in results}
    base = found[LAS]
    rows = {
        name: {ratio: found[policy][ratio] / base[ratio] for ratio in RATIOS}
        for name, policy in POLICIES.items()
    }
    return Table(dict.fromkeys(RATIOS, ".2f"), rows)


def _events(_seeds: Sequence[int], cluster: str, whole: bool) -> Iterable[Words]:
    for words in AT_ONCE.values():
        yield _replay(cluster, whole, LAS, words)


def _at_once(results: Sequence[Done]) -> Table:
    columns = {"avg": ",.0f", "median": ",.0f", "p95": ",.0f", "preemptions": ",.0f"}
    rows = {
        name: {column: done.value[column] for column in columns}
        for name, done in zip(AT_ONCE, results, strict=True)
    }
    return Table(columns, rows)


def _timed(_seeds: Sequence[int], clusters: Sequence[str], whole: bool) -> Iterable[Words]:
    for policy in TIMED:
        for cluster in clusters:
            yield _replay(cluster, whole, policy)


def _speeds(results: Sequence[Done]) -> Table:
    rows: dict[str, dict[str, Cell]] = {}
    clusters = [*dict.fromkeys(done.words["cluster"] for done in results)]
    for done in results:
        policy = done.words["policy"]
        row = rows.setdefault(f"`{policy}`", {"goal": GOALS.get(policy, ANY_POLICY)})
        row[done.words["cluster"]] = done.value["jobs"] / max(1e-9, done.value["cpu_s"])
    return Table({"goal": ",.0f", **dict.fromkeys(clusters, ",.0f")}, rows)


def _splits(_seeds: Sequence[int], whole: bool) -> Iterable[Words]:
    for split in range(SPLITS):
        yield {"log": LOG, "whole": whole, "split": split}


def _unseen(results: Sequence[Done]) -> Table:
    columns = ("trees", "median of jobs like it")
    rows = {done.value["name"]: {name: done.value[name] for name in columns} for done in results}
    return Table(dict.fromkeys(columns, ".3f"), rows)


def _case(
    name: str,
    page: str,
    section: str,
    about: str,
    rows: str,
    parts: Callable[..., Iterable[Words]],
    table: Callable[[Sequence[Done]], Table],
    short: Form,
    full: Form,
    *,
    fitted_on: tuple[str, ...] = (),
    paper: Printed = NONE_PRINTED,
    differs: Mapping[str, str] | None = None,
) -> Case:
    return Case(
        name=name, page=page, section=section, about=about, rows=rows, run=on_log, parts=parts,
        table=table, seeds=(0,), short=short, full=full, paper=paper, differs=differs or {},
        judged_on=(LOG,), fitted_on=fitted_on, logs=(LOG,),
    )  # fmt: skip


CASES = (
    _case(
        "tiresias-philly", "tiresias.md", "What Tiresias claims",
        "The Philly log, JCT over that of Tiresias-L; the paper has its own stretch of the trace.",
        "claim", _claims, _claimed,
        Form(12, words={"cluster": "4x8", **SAMPLE}), Form(120, words={"cluster": "72x8", **WHOLE}),
        paper=CLAIMS, differs=DIFFERS,
    ),
    _case(
        "tiresias-philly-at-once", "tiresias-sensitivity.md", "Decisions at any event",
        "`tiresias-las` on the Philly log; seconds.", "with", _events, _at_once,
        Form(10, words={"cluster": "4x8", **SAMPLE}), Form(150, words={"cluster": "72x8", **WHOLE}),
    ),
    _case(
        "every-preset-philly", "every-preset.md", "The whole Philly log",
        "Jobs per second of CPU time, which reads and replays. Other work on the machine slows it.",
        "policy", _timed, _speeds,
        Form(20, words={"clusters": ["6x8"], **SAMPLE}),
        Form(700, words={"clusters": ["60x8", "120x8"], **WHOLE}), fitted_on=chosen_on("dlq"),
    ),
    Case(
        name="aryl-unseen", page="aryl.md", section="Run times of jobs that nobody has seen",
        about="Median errors of the logarithm of the run time.", rows="judged on", run=unseen,
        parts=_splits, table=_unseen, seeds=(0,), short=Form(10, words=SAMPLE),
        full=Form(120, words=WHOLE), paper=NONE_PRINTED, judged_on=(LOG,), fitted_on=(),
        modules=("sklearn",), logs=(LOG,),
    ),
)  # fmt: skip
