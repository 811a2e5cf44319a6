"""Aryl's Table 8 and Figure 15 (its testbed, simulated), and Table 9 (wrong run times)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.papers.aryl_cases import JOBS, SEEDS
from benchmarks.reproduce.case import Case, Cell, Done, Figure, Form, Printed, Table, Words
from benchmarks.reproduce.figures.curves import down, in_a_row, printed
from benchmarks.reproduce.runs.aryl_testbed import WAYS, testbed
from benchmarks.reproduce.runs.tuned_rows import wrong_times
from benchmarks.support.drawing import Plot
from benchmarks.support.means import means

PAGE = "aryl-tuned.md"
TESTBED_SEEDS = tuple(range(201, 211))
KINDS = {"mean": "avg", "median": "median", "95th": "p95"}
FIGURES = {
    f"{what} {how}": f"{kind}_{name}_s"
    for what, name in (("queueing", "queue"), ("JCT", "jct"))
    for how, kind in KINDS.items()
}
LOST, DAMAGE = "preempted, %", "vacated besides"
ROWS = {
    "Baseline": (1532, 772, 1003, 4078, 2183, 3096),
    "Basic, Aryl": (1109, 503, 738, 3335, 1747, 2731),
    "Loaning, Random": (1527, 658, 993, 3893, 2046, 3015),
    "Loaning, SCF": (1473, 614, 864, 3857, 1994, 3001),
    "Loaning, Aryl": (1230, 594, 823, 3748, 1946, 2864),
    "Scaling, Gandiva": (1443, 645, 1002, 3882, 2015, 2893),
    "Scaling, AFS": (1338, 534, 882, 3521, 1836, 2803),
    "Scaling, Pollux": (1405, 576, 937, 3552, 1934, 3004),
    "Scaling, Aryl": (1318, 546, 798, 3413, 1791, 2794),
}
PREEMPTED = {
    "Basic, Aryl": 18,
    "Loaning, Random": 34,
    "Loaning, SCF": 30,
    "Loaning, Aryl": 22,
}
TABLE_8: Printed = {
    name: {
        **dict(zip(FIGURES, values, strict=True)),
        **({LOST: PREEMPTED[name]} if name in PREEMPTED else {}),
    }
    for name, values in ROWS.items()
}
TAIL = "The paper's means are above its 95th percentiles: a few of its jobs waited for hours."
ORDER = "Shortest first with exact run times leaves little queueing, as in Table 5."
FEW = "At most two servers are lent, and few jobs are on them when they go back."
DIFFERS_8 = {
    "Baseline": TAIL,
    **{name: ORDER for name in ROWS if name != "Baseline"},
    **{name: FEW for name in ROWS if name.startswith("Loaning")},
}
JCT, QUEUE = "JCT, FIFO's over it", "queueing, FIFO's over it"
WRONG = {0.0: (2.37, 1.57), 0.2: (2.21, 1.52), 0.4: (2.17, 1.49), 0.6: (1.76, 1.38)}
BASELINE, BASIC = "Baseline", "Basic, Aryl"


def _row(wrong: float) -> str:
    return f"{wrong:.0%} wrong".replace("%", " %")


TABLE_9: Printed = {_row(at): {QUEUE: queue, JCT: jct} for at, (queue, jct) in WRONG.items()}
UNSAID = "The paper does not name its scenario; here the order leaves little queueing."
NEVER = "An error of at most a quarter seldom changes which of two jobs is the shorter."


def _ways(seeds: Sequence[int]) -> Iterable[Words]:
    for way in WAYS:
        for seed in seeds:
            yield {"way": way, "seed": seed}


def _table_8(results: Sequence[Done]) -> Table:
    rows: dict[str, dict[str, Cell]] = {}
    for name, way in WAYS.items():
        found = means([done.value for done in results if done.words["way"] == name])
        rows[name] = {column: found[figure] for column, figure in FIGURES.items()}
        rows[name][LOST] = found["preempted"] if way.lends else None
        rows[name][DAMAGE] = found["damage"] if way.lends else None
    return Table({**dict.fromkeys(FIGURES, ",.0f"), LOST: ".2f", DAMAGE: ".3f"}, rows)


def _figure_15(results: Sequence[Done]) -> list[Plot]:
    rows = {name: row for name, row in _table_8(results).rows.items() if WAYS[name].lends}
    names = [*rows]
    places = in_a_row(names)
    return [
        Plot("rule", "preemptions over jobs, %", down(rows, [LOST], places), "",
             printed(TABLE_8, [LOST], places), names),
        Plot("rule", "GPUs vacated besides, over those asked back", down(rows, [DAMAGE], places),
             ticks=names),
    ]  # fmt: skip


def _wrong(seeds: Sequence[int], jobs: int) -> Iterable[Words]:
    for seed in seeds:
        yield {"method": BASELINE, "wrong": 0.0, "seed": seed, "jobs": jobs}
        for wrong in WRONG:
            yield {"method": BASIC, "wrong": wrong, "seed": seed, "jobs": jobs}


def _table_9(results: Sequence[Done]) -> Table:
    def found(method: str, wrong: float) -> dict[str, float]:
        asked = (method, wrong)
        words = ("method", "wrong")
        same = [it.value for it in results if tuple(it.words[word] for word in words) == asked]
        return {name: value or 0.0 for name, value in means(same).items()}

    base, rows = found(BASELINE, 0.0), {}
    for wrong in WRONG:
        ours = found(BASIC, wrong)
        rows[_row(wrong)] = {
            QUEUE: base["queue_s"] / max(1e-9, ours["queue_s"]),
            JCT: base["jct_s"] / ours["jct_s"],
        }
    return Table({QUEUE: ".2f", JCT: ".2f"}, rows)


CASES = (
    Case(
        name="aryl-testbed",
        page=PAGE,
        section="Testbed",
        about="Table 8 and Figure 15 as a simulation: 180 jobs on 4 + 4 servers; seconds.",
        rows="method",
        run=testbed,
        parts=_ways,
        table=_table_8,
        seeds=TESTBED_SEEDS,
        short=Form(15, seeds=10),
        full=Form(15, seeds=10),
        paper=TABLE_8,
        judged_on=("aryl-testbed",),
        fitted_on=("aryl-testbed-fitted",),
        differs=DIFFERS_8,
        figure=Figure("Figure 15 in shape: the rules of reclaims.", _figure_15),
    ),
    Case(
        name="aryl-wrong-times",
        page=PAGE,
        section="Wrong run times",
        about="Table 9, with the jobs of Basic; a wrong run time is off by up to 25 % either way.",
        rows="predictions",
        run=wrong_times,
        parts=_wrong,
        table=_table_9,
        seeds=SEEDS,
        short=Form(27, words={"jobs": JOBS}),
        full=Form(81, seeds=3, words={"jobs": JOBS}),
        paper=TABLE_9,
        judged_on=("aryl-drawn",),
        fitted_on=("aryl-drawn",),
        differs={**dict.fromkeys(TABLE_9, NEVER), _row(0.0): UNSAID},
        in_sample="The run times were drawn so that the means of FIFO come out, on these seeds.",
    ),
)
