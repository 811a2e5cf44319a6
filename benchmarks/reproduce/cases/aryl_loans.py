"""Aryl's Table 7, Figures 7 and 9 and the usage in Table 5, on the workload of Tables 5 and 12."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.papers.aryl_cases import JOBS, SEEDS
from benchmarks.reproduce.case import Case, Cell, Done, Figure, Form, Printed, Table, Words
from benchmarks.reproduce.runs.aryl_loans import on_loan, use
from benchmarks.support.drawing import Plot
from benchmarks.support.means import means

PAGE = "aryl-tuned.md"
IN_SAMPLE = "The run times were drawn so that the means of FIFO come out, on these seeds."
SPREAD = [f"{what} {how}" for what in ("queueing", "JCT") for how in ("mean", "median", "95th")]
TABLE_7: Printed = {
    "Baseline": dict(zip(SPREAD, (4573, 1283, 23351, 11547, 2122, 60170), strict=True)),
    "Aryl": dict(zip(SPREAD, (1029, 272, 7249, 6832, 1256, 35604), strict=True)),
}
SHARE, TRAINING, OVERALL, LENT = "of all jobs, %", "training, %", "overall, %", "lent, %"
USED: Printed = {
    "Baseline": {TRAINING: 72, OVERALL: 52},
    "Basic, Aryl": {TRAINING: 86, OVERALL: 66},
    "Advanced, Aryl": {TRAINING: 87, OVERALL: 69},
    "Ideal, Aryl": {TRAINING: 92, OVERALL: 72},
    "Loaning, Aryl": {TRAINING: 76, OVERALL: 66, LENT: 93},
}
SPARE = "Training servers have room, so jobs seldom turn to lent ones; the paper's are full."
SERVING = "The paper's 52 % mean 35 % of its inference cluster, of which it also says about 65 %."
DIFFERS_7 = {
    "Baseline": "Training servers have room, so only jobs at the worst hours are on lent ones.",
    "Aryl": "The order leaves little queueing, and lent servers have a third of the speed.",
}
DIFFERS_USE = {name: SPARE for name in USED if name != "Baseline"} | {"Baseline": SERVING}


def _seeded(seeds: Sequence[int], jobs: int) -> Iterable[Words]:
    for seed in seeds:
        yield {"seed": seed, "jobs": jobs}


def _table_7(results: Sequence[Done]) -> Table:
    rows: dict[str, dict[str, Cell]] = {}
    share = means([{SHARE: 100 * done.value["share"]} for done in results])[SHARE]
    for name in TABLE_7:
        found = means([done.value[name] for done in results])
        rows[name] = {SHARE: share, **{column: found[column] for column in SPREAD}}
    return Table({SHARE: ".1f", **dict.fromkeys(SPREAD, ",.0f")}, rows)


def _methods(seeds: Sequence[int], jobs: int) -> Iterable[Words]:
    for method in USED:
        for seed in seeds:
            yield {"method": method, "seed": seed, "jobs": jobs}


def _used(results: Sequence[Done]) -> Table:
    rows: dict[str, dict[str, Cell]] = {}
    for name in USED:
        found = means(
            [
                {
                    TRAINING: 100 * done.value["training"],
                    OVERALL: 100 * done.value["overall"],
                    LENT: 100 * sum(done.value["lent_days"]) / len(done.value["lent_days"]),
                }
                for done in results
                if done.words["method"] == name
            ]
        )
        rows[name] = {**found, LENT: None if name == "Baseline" else found[LENT]}
    return Table(dict.fromkeys((TRAINING, OVERALL, LENT), ".0f"), rows)


def _plots(results: Sequence[Done]) -> list[Plot]:
    """Figure 9, and Figure 7: of the first seed."""
    first = results[0].words["seed"]
    ours = {done.words["method"]: done.value for done in results if done.words["seed"] == first}
    hours = {
        name: [(float(at), 100 * value) for at, value in enumerate(found["hours"])]
        for name, found in ours.items()
    }
    days = {
        name: [(float(at), 100 * value) for at, value in enumerate(found["lent_days"], start=1)]
        for name, found in ours.items()
        if name != "Baseline"
    }
    return [
        Plot("hours of two days", "GPUs in use, %", hours, title="Figure 9"),
        Plot("day", "lent GPUs in use, %", days, title="Figure 7"),
    ]


CASES = (
    Case(
        name="aryl-on-loan",
        page=PAGE,
        section="Jobs on lent servers",
        about="Table 7: seconds of the jobs that Aryl had on lent servers, in both replays.",
        rows="method",
        run=on_loan,
        parts=_seeded,
        table=_table_7,
        seeds=SEEDS,
        short=Form(5, words={"jobs": JOBS}),
        full=Form(15, seeds=3, words={"jobs": JOBS}),
        paper=TABLE_7,
        judged_on=("aryl-drawn",),
        fitted_on=("aryl-drawn",),
        differs=DIFFERS_7,
        in_sample=IN_SAMPLE,
    ),
    Case(
        name="aryl-use",
        page=PAGE,
        section="Use of servers",
        about="GPUs in use as in Table 5, and Figures 7 and 9 in shape.",
        rows="method",
        run=use,
        parts=_methods,
        table=_used,
        seeds=SEEDS,
        short=Form(34, words={"jobs": JOBS}),
        full=Form(105, seeds=3, words={"jobs": JOBS}),
        paper=USED,
        judged_on=("aryl-drawn",),
        fitted_on=("aryl-drawn",),
        differs=DIFFERS_USE,
        in_sample=IN_SAMPLE,
        figure=Figure("GPUs in use, all of them by hours, and lent ones by days.", _plots),
    ),
)
