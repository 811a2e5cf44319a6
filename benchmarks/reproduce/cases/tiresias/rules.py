"""Tiresias: decisions at any event, Table 5 with Gandiva, and the settings of Figures 14 and 15."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

from benchmarks.reproduce.case import (
    NONE_PRINTED,
    Case,
    Done,
    Figure,
    Form,
    Printed,
    Table,
    Words,
)
from benchmarks.reproduce.figures.tiresias import distribution, sensitivity
from benchmarks.reproduce.runs.distributions import distributed
from benchmarks.reproduce.runs.replays import TRACES, replayed
from benchmarks.reproduce.runs.tiresias_rules import CLUSTER, GANDIVA, GITTINS, varied

PAGE = "tiresias-sensitivity.md"
SEEDS = (51, 4801, 4802)  # fixed before the figures
IDEAL = ("place=count", "preempt=free")
LAS = "tiresias-las"
HOUR_GPU_S = 3600.0
PERCENTILES = (10, 25, 50, 75, 90, 95, 99)
RATIOS = {"avg": ".2f", "median": ".2f", "p95": ".2f", "longest": ".2f"}
Row = tuple[str, tuple[str, ...]]  # a policy and its settings

EVENTS: Mapping[str, tuple[str, ...]] = {
    "at boundaries (default)": (),
    "`preempt=at-once`": ("preempt=at-once",),
    "the same, `min_run=off`": ("preempt=at-once", "min_run=off"),
    "the same, `min_run=10`": ("preempt=at-once", "min_run=10"),
}
TABLE_5: Mapping[str, Row] = {
    "Tiresias-L": (LAS, ()),
    "YARN-CS": ("fifo", ()),
    "Best-effort": ("best-effort", ()),
    "SRTF": ("srtf", ()),
    "Gandiva": (GANDIVA, ()),
    "Tiresias-G": (GITTINS, ()),
}
PRINTED_5: Printed = {
    "YARN-CS": {"avg": 2.41, "median": 30.85, "p95": 1.25},
    "Best-effort": {"avg": 1.50, "median": 9.03, "p95": 1.08},
    "SRTF": {"avg": 1.00, "median": 1.00, "p95": 0.84},
    "Gandiva": {"avg": 2.00, "median": 2.59, "p95": 2.08},
    "Tiresias-G": {"avg": 0.97, "median": 1.00, "p95": 0.85},
}
OTHER_JOBS = "Other jobs: a workload of section 5.1, the paper's trace is not open."
DIFFERS_5 = dict.fromkeys(PRINTED_5, OTHER_JOBS) | {
    "Gandiva": "A short job shares its GPUs with all that wait. No job here needs more than two "
    "hours, and turns cost the longest jobs most."
}


def queues(*hours: float) -> str:
    """`(2, 1h)` of the paper as a setting."""
    return f"thresholds={','.join(f'{hour * HOUR_GPU_S:g}' for hour in hours)}"


def settings() -> Mapping[str, tuple[str, ...]]:
    """The bars of Figures 14 and 15; the first is what the others are compared with."""
    bars: dict[str, tuple[str, ...]] = {}
    for hours in (1, 0.5, 2, 4):
        bars[f"(2, {hours:g}h)"] = (queues(hours),)
    bars["(3, 1h, 2h)"] = (queues(1, 2),)
    bars["(4, 1h, 2h, 4h)"] = (queues(1, 2, 4),)
    for knob in (1, 2, 4, 8, 16):
        bars[f"PROMOTEKNOB {knob}"] = (queues(1), f"promote_knob={knob}")
    return bars


def figure(policy: str) -> Mapping[str, Row]:
    """The bars of one policy."""
    return {name: (policy, words) for name, words in settings().items()}


def _parts(rows: Mapping[str, Row], *more: str) -> Callable[[Sequence[int]], Iterable[Words]]:
    def parts(seeds: Sequence[int]) -> Iterable[Words]:
        for policy, words in rows.values():
            for seed in seeds:
                yield {"policy": policy, "settings": [*words, *more], "seed": seed}

    return parts


def _ratios(rows: Mapping[str, Row]) -> Callable[[Sequence[Done]], Table]:
    """Over the first row, seed by seed; the mean over the seeds."""

    def table(results: Sequence[Done]) -> Table:
        seeds = len(results) // len(rows)
        values = [done.value for done in results]
        found = {}
        for place, name in enumerate(rows):
            own = values[place * seeds : (place + 1) * seeds]
            pairs = list(zip(own, values[:seeds], strict=True))
            told = {
                column: fmean([one[column] / base[column] for one, base in pairs])
                for column in RATIOS
            }
            found[name] = {**told, "preemptions": fmean(one["preemptions"] for one in own)}
        return Table({**RATIOS, "preemptions": ",.0f"}, found)

    return table


def _ratio_case(
    name: str,
    section: str,
    about: str,
    rows: Mapping[str, Row],
    *,
    paper: Printed = NONE_PRINTED,
    ideal: tuple[str, ...] = (),
    figure: Figure | None = None,
) -> Case:
    return Case(
        name=name,
        page=PAGE,
        section=section,
        about=about,
        rows="row",
        run=varied,
        parts=_parts(rows, *ideal),
        table=_ratios(rows),
        seeds=SEEDS,
        short=Form(cpu_s=8),
        full=Form(cpu_s=24, seeds=3),
        paper=paper,
        judged_on=("tiresias-drawn",),
        fitted_on=(),
        differs=DIFFERS_5 if paper else {},
        figure=figure,
    )


def _events_parts(_seeds: Sequence[int]) -> Iterable[Words]:
    trace = f"{TRACES}/own_480_job.csv"
    for words in EVENTS.values():
        yield {"trace": trace, "cluster": CLUSTER, "policy": LAS, "settings": list(words)}


def _events(results: Sequence[Done]) -> Table:
    names = ("avg_jct_s", "median_jct_s", "p95_jct_s", "preemptions")
    columns = dict.fromkeys(names, ",.0f")
    found = {
        name: {column: done.value[column] for column in columns}
        for name, done in zip(EVENTS, results, strict=True)
    }
    return Table(columns, found)


def _spread(seeds: Sequence[int]) -> Iterable[Words]:
    for name, (policy, words) in TABLE_5.items():
        for seed in seeds:
            yield {"name": name, "policy": policy, "settings": list(words), "seed": seed}


def _percentiles(results: Sequence[Done]) -> Table:
    """The mean over the seeds."""
    found: dict[str, dict[str, float]] = {}
    for name in TABLE_5:
        own = [dict(done.value["jct_s"]) for done in results if done.words["name"] == name]
        found[name] = {
            f"p{percent}": fmean(one[percent / 100] for one in own) for percent in PERCENTILES
        }
    return Table(dict.fromkeys([f"p{percent}" for percent in PERCENTILES], ",.0f"), found)


def _curves(policy: str, name: str) -> Figure:
    """Figure 14 or 15."""
    drawn = sensitivity(_ratios(figure(policy)), of_l=policy == LAS)
    return Figure(f"Completion times under {name} over its settings.", drawn)


CASES = (
    Case(
        name="tiresias-at-once",
        page=PAGE,
        section="Decisions at any event",
        about="`tiresias-las` on `own_480_job.csv` with 15x4 GPUs; seconds.",
        rows="with",
        run=replayed,
        parts=_events_parts,
        table=_events,
        seeds=(0,),
        short=Form(cpu_s=2),
        full=Form(cpu_s=2),
        paper=NONE_PRINTED,
        judged_on=("own-480",),
        fitted_on=(),
        inputs=(f"{TRACES}/own_480_job.csv",),
    ),
    _ratio_case(
        "tiresias-table-5",
        "Table 5, with Gandiva",
        "JCT over that of Tiresias-L; a preemption costs a minute and waits for a boundary.",
        TABLE_5,
        paper=PRINTED_5,
    ),
    _ratio_case(
        "tiresias-table-5-ideal",
        "Table 5, with Gandiva",
        "The same where GPUs are only counted, and taken at any event and at no cost.",
        TABLE_5,
        ideal=IDEAL,
        paper=PRINTED_5,
    ),
    Case(
        name="tiresias-figure-13",
        page=PAGE,
        section="Table 5, with Gandiva",
        about="Figure 13 in shape: completion times in seconds, where a preemption costs a minute.",
        rows="policy",
        run=distributed,
        parts=_spread,
        table=_percentiles,
        seeds=SEEDS,
        short=Form(cpu_s=5),
        full=Form(cpu_s=15, seeds=3),
        paper=NONE_PRINTED,
        judged_on=("tiresias-drawn",),
        fitted_on=(),
        figure=Figure("Completion times of the jobs, by policy.", distribution),
    ),
    _ratio_case(
        "tiresias-figure-14",
        "Thresholds, K and PROMOTEKNOB",
        "Tiresias-L: JCT over that with (2, 1h).",
        figure(LAS),
        figure=_curves(LAS, "Tiresias-L"),
    ),
    _ratio_case(
        "tiresias-figure-15",
        "Thresholds, K and PROMOTEKNOB",
        "Tiresias-G: JCT over that with (2, 1h).",
        figure(GITTINS),
        figure=_curves(GITTINS, "Tiresias-G"),
    ),
)
