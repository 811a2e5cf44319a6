"""Chronus as printed: its program, its leases and placements, and what it compares with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import mean

from benchmarks.papers.chronus import local_search, program
from benchmarks.papers.chronus.sweeps import REFUSED, SOFT, STRICT, Figures, swept
from benchmarks.papers.deadline_cases import MIX_NAMES, SEEDS
from benchmarks.reproduce.case import NONE_PRINTED, Case, Cell, Done, Figure, Form, Table, Words
from benchmarks.reproduce.figures import chronus as drawn
from dlq_master.policy.promise.capacity.rules import SOLVER_S

PAGE = "chronus-as-printed.md"
PAPER = "chronus-paper"
POLICIES = (
    "chronus", PAPER, "edf", "edf-preemptive", "3sigma", "genie", "yarn-cs", "tiresias-las",
    "themis", "srtf",
)  # fmt: skip
LEASES_S = (300, 600, 900, 1200, 1800, 3600)
NOISES = (0.0, 0.2, 0.4)
MISSES, BE_JCT, STOPS = "wDMR, %", "BE JCT, h", "preemptions"
GUARANTEED, BROKEN = "guaranteed", "promises missed"
SWEPT = {MISSES: ".2f", BE_JCT: ".1f", STOPS: ",.0f", GUARANTEED: ",.0f", BROKEN: ",.0f"}
_SHORT_JOBS, _FULL_JOBS = 150, 600
DRAWN = ("chronus-drawn",)


def _sweep(
    settings: Mapping[str, tuple[str, ...]],
    cells: Sequence[tuple[str, int]],
    policies: Sequence[str] = (PAPER,),
) -> Callable[..., Iterable[Words]]:
    def parts(seeds: Sequence[int], jobs: int) -> Iterable[Words]:
        for policy in policies:
            for words in settings.values():
                for mix, density in cells:
                    for seed in seeds:
                        yield {
                            "policy": policy, "settings": list(words), "mix": mix,
                            "density": density, "seed": seed, "jobs": jobs,
                        }  # fmt: skip

    return parts


def _mean(results: Iterable[Figures], name: str) -> float | None:
    found = [one[name] for one in results]
    known = [value for value in found if value is not None]
    return mean(known) if known else None


def _percent(value: float | None) -> float | None:
    return None if value is None else 100.0 * value


def _swept_row(results: Sequence[Figures]) -> dict[str, Cell]:
    return {
        MISSES: _percent(_mean(results, "wdmr")),
        BE_JCT: _mean(results, "be_jct_h"),
        STOPS: _mean(results, STOPS),
        GUARANTEED: _mean(results, GUARANTEED),
        BROKEN: _mean(results, "promises_missed"),
    }


LEASES = {f"{seconds // 60} minutes": (f"slo_term_s={seconds}",) for seconds in LEASES_S}
ROUNDING = {"with round-up": ("round_up=on",), "without": ("round_up=off",)}
HOSTILE_SHARES = (0.0, 0.2, 0.4, 0.6)
OBJECTIVES = {"the most reward": ("selector=printed",), "any solution": ("selector=feasible",)}
NOISE = {f"noise {noise:g}": ("know=profiled", f"noise={noise:g}") for noise in NOISES}


def _by_settings(rows: Mapping[str, tuple[str, ...]]) -> Callable[[Sequence[Done]], Table]:
    def table(results: Sequence[Done]) -> Table:
        made = {}
        for name, words in rows.items():
            own = [done.value for done in results if done.words["settings"] == list(words)]
            made[name] = _swept_row(own)
        return Table(SWEPT, made)

    return table


def _objective(results: Sequence[Done]) -> Table:
    columns = {MISSES: ".2f", "strict": ".2f", "soft": ".2f", BE_JCT: ".1f"}
    rows: dict[str, dict[str, Cell]] = {}
    for name, words in OBJECTIVES.items():
        for density in (100, 140):
            own = [
                done.value
                for done in results
                if done.words["settings"] == list(words) and done.words["density"] == density
            ]
            rows[f"{name}, {density} %"] = {
                MISSES: _percent(_mean(own, "wdmr")),
                "strict": _percent(_mean(own, STRICT)),
                "soft": _percent(_mean(own, SOFT)),
                BE_JCT: _mean(own, "be_jct_h"),
            }
    return Table(columns, rows)


def _refused(results: Sequence[Done]) -> Table:
    rows: dict[str, dict[str, Cell]] = {}
    for mix in MIX_NAMES:
        own = [
            done.value
            for done in results
            if (done.words["mix"], done.words["policy"]) == (mix, PAPER)
        ]
        rows[mix] = {
            "of refused jobs, %": _percent(_mean(own, REFUSED)),
            "of all, %": _percent(_mean(own, "wdmr")),
        }
    return Table({"of refused jobs, %": ".1f", "of all, %": ".1f"}, rows)


def _compared(results: Sequence[Done]) -> Table:
    columns: dict[str, str] = {}
    rows: dict[str, dict[str, Cell]] = {policy: {} for policy in POLICIES}
    for mix in MIX_NAMES:
        columns[f"{mix}: wDMR, %"] = ".2f"
        if mix != "slo":
            columns[f"{mix}: BE JCT, h"] = ".1f"
        for policy in POLICIES:
            own = [
                done.value
                for done in results
                if (done.words["mix"], done.words["policy"]) == (mix, policy)
            ]
            rows[policy][f"{mix}: wDMR, %"] = _percent(_mean(own, "wdmr"))
            if mix != "slo":
                rows[policy][f"{mix}: BE JCT, h"] = _mean(own, "be_jct_h")
    return Table(columns, rows)


def _sizes(seeds: Sequence[int], limit_s: float) -> Iterable[Words]:
    for gpus, count in program.SIZES:
        for load in program.LOADS:
            for seed in seeds:
                yield {"gpus": gpus, "count": count, "load": load, "seed": seed, "limit_s": limit_s}


def _program(results: Sequence[Done]) -> Table:
    rows: dict[str, dict[str, Cell]] = {}
    for done in results:
        words, (most, any_one) = done.words, done.value
        also = "" if words["seed"] == program.SEEDS[0] else f", seed {words['seed']}"
        rows[f"{words['gpus']:,} x {words['count']}, {words['load']:g}{also}"] = {
            "variables": most["variables"],
            "most reward": program.cell(program.ProgramRow(**most)),
            "any solution": program.cell(program.ProgramRow(**any_one)),
        }
    return Table({"variables": ",.0f", "most reward": "", "any solution": ""}, rows)


def _hostile(seeds: Sequence[int], jobs: int) -> Iterable[Words]:
    for hostile in HOSTILE_SHARES:
        for words in ROUNDING.values():
            for seed in seeds:
                yield {
                    "policy": PAPER, "settings": list(words), "mix": "mix2", "density": 120,
                    "seed": seed, "jobs": jobs, "hostile": hostile,
                }  # fmt: skip


def _rounding(results: Sequence[Done]) -> Table:
    columns: dict[str, str] = {}
    rows: dict[str, dict[str, Cell]] = {f"{hostile:.0%}": {} for hostile in HOSTILE_SHARES}
    for name, words in ROUNDING.items():
        columns |= {f"{name}: {MISSES}": ".2f", f"{name}: {BE_JCT}": ".1f"}
        for hostile in HOSTILE_SHARES:
            own = [
                done.value
                for done in results
                if (done.words["settings"], done.words["hostile"]) == (list(words), hostile)
            ]
            row = rows[f"{hostile:.0%}"]
            row[f"{name}: {MISSES}"] = _percent(_mean(own, "wdmr"))
            row[f"{name}: {BE_JCT}"] = _mean(own, "be_jct_h")
    return Table(columns, rows)


def _placements(seeds: Sequence[int], jobs: int) -> Iterable[Words]:
    for placement in local_search.PLACEMENTS:
        for price in local_search.PRICES:
            for seed in seeds:
                yield {"placement": placement, "price": price, "seed": seed, "jobs": jobs}


def _local_search(results: Sequence[Done]) -> Table:
    rows: dict[str, dict[str, Cell]] = {}
    for placement in local_search.PLACEMENTS:
        rows[placement] = {}
        for price in local_search.PRICES:
            own = [
                done.value
                for done in results
                if (done.words["placement"], done.words["price"]) == (placement, price)
            ]
            jct_s, stops = _mean(own, "jct_s"), _mean(own, STOPS)
            rows[placement][price] = f"{jct_s:,.0f} ({stops:,.0f})"
    return Table(dict.fromkeys(local_search.PRICES, ""), rows)


_FIGURE_9 = _sweep({"": ()}, [(mix, 120) for mix in MIX_NAMES], POLICIES)
_SHORT_9 = Form(cpu_s=25, words={"jobs": _SHORT_JOBS})
_FULL_9 = Form(cpu_s=3600, seeds=3, words={"jobs": _FULL_JOBS})


def _swept_case(
    name: str,
    section: str,
    about: str,
    rows: str,
    settings: Mapping[str, tuple[str, ...]],
    cells: Sequence[tuple[str, int]],
    figure: Figure,
    table: Callable[[Sequence[Done]], Table] | None = None,
) -> Case:
    return Case(
        name=name, page=PAGE, section=section, about=about, rows=rows, run=swept,
        parts=_sweep(settings, cells), table=table or _by_settings(settings), seeds=SEEDS,
        short=Form(cpu_s=18, words={"jobs": _SHORT_JOBS}),
        full=Form(cpu_s=1800, seeds=3, words={"jobs": _FULL_JOBS}), paper=NONE_PRINTED,
        judged_on=DRAWN, fitted_on=(), figure=figure,
    )  # fmt: skip


CASES = (
    Case(
        name="chronus-program", page=PAGE, section="Where the program stops being solvable",
        about="Its answers by size (Figure 7d), with the wall time of a call.",
        rows="GPUs x jobs, load", run=program.asked_twice, parts=_sizes, table=_program,
        seeds=program.SEEDS, short=Form(cpu_s=45, words={"limit_s": SOLVER_S}),
        full=Form(cpu_s=1200, seeds=3, words={"limit_s": program.FULL_S}), paper=NONE_PRINTED,
        judged_on=("chronus-sets",), fitted_on=(),
        figure=Figure("Time of a call of the program.", drawn.latency),
    ),
    Case(
        name="chronus-compared", page=PAGE, section="Beside what it is compared with (Figure 9)",
        about="All policies at a density of 120 %, with exact run times.", rows="policy",
        run=swept, parts=_FIGURE_9, table=_compared, seeds=SEEDS, short=_SHORT_9,
        full=_FULL_9, paper=NONE_PRINTED, judged_on=DRAWN, fitted_on=DRAWN,
        in_sample="Only `chronus` has constants of ours: they were chosen on seed 7501.",
        figure=Figure("Policies by workload.", drawn.compared(_compared)),
    ),
    _swept_case(
        "chronus-leases", "Its leases and its program (Figures 6d and 7)",
        "The length of an SLO lease (7a): `mix2` at 100 %.", "SLO lease", LEASES, [("mix2", 100)],
        Figure("Over the length of an SLO lease.", drawn.swept(
            _by_settings(LEASES), "SLO lease, minutes",
            {f"{seconds // 60} minutes": seconds / 60 for seconds in LEASES_S},
        )),
    ),
    _swept_case(
        "chronus-objective", "Its leases and its program (Figures 6d and 7)",
        "The objective against any solution (7b): wDMR in % on `mix2`, by kind of job.",
        "the program asks for", OBJECTIVES, [("mix2", 100), ("mix2", 140)],
        Figure("With and without the objective.", drawn.objective(_objective)), _objective,
    ),
    Case(
        name="chronus-refused", page=PAGE, section="Its leases and its program (Figures 6d and 7)",
        about="wDMR of the jobs that admission refused (7c), at 120 %.", rows="workload",
        run=swept, parts=_FIGURE_9, table=_refused, seeds=SEEDS, short=_SHORT_9,
        full=_FULL_9, paper=NONE_PRINTED, judged_on=DRAWN, fitted_on=(),
        figure=Figure("wDMR of refused jobs and of all.", drawn.refused(_refused)),
    ),
    _swept_case(
        "chronus-printed-errors", "Its leases and its program (Figures 6d and 7)",
        "Run times from trials, with an error (6d): `mix2` at 120 %.",
        "standard deviation of the error", NOISE, [("mix2", 120)],
        Figure("Over the error of estimates.", drawn.swept(
            _by_settings(NOISE), "error of estimates, part of the run time",
            dict(zip(NOISE, NOISES, strict=True)),
        )),
    ),
    Case(
        name="chronus-round-up", page=PAGE, section="Its placements (Figure 8)",
        about="Round-up (8a) by the share of hostile jobs, which ask for 3, 5, 6 or 7 GPUs: `mix2` at 120 %.",  # noqa: E501
        rows="hostile jobs", run=swept, parts=_hostile, table=_rounding, seeds=SEEDS,
        short=Form(cpu_s=35, seeds=3, words={"jobs": _SHORT_JOBS}),
        full=Form(cpu_s=1200, seeds=3, words={"jobs": _FULL_JOBS}), paper=NONE_PRINTED,
        judged_on=DRAWN, fitted_on=(),
        figure=Figure("With and without round-up.", drawn.rounding(
            _rounding, {f"{share:.0%}": share for share in HOSTILE_SHARES},
        )),
    ),
    Case(
        name="chronus-local-search", page=PAGE, section="Its placements (Figure 8)",
        about="Mean JCT of best-effort jobs in seconds; in brackets the preemptions of a replay.",
        rows="placement", run=local_search.placed, parts=_placements, table=_local_search,
        seeds=local_search.SEEDS, short=Form(cpu_s=15, words={"jobs": local_search.JOBS}),
        full=Form(cpu_s=120, seeds=6, words={"jobs": local_search.FULL_JOBS}), paper=NONE_PRINTED,
        judged_on=("chronus-placed",), fitted_on=(),
        figure=Figure("Mean JCT of best-effort jobs by placement.", drawn.placements),
    ),
)  # fmt: skip
