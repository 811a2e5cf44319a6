"""The parts of promises one by one: admission under overload, the lease selector, placements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

from benchmarks.papers import slo_jobs
from benchmarks.planning.placement_cases import LARGE_RECIPES, RECIPES, SEEDS
from benchmarks.reproduce.case import NONE_PRINTED, Case, Cell, Done, Form, Table, Words
from benchmarks.reproduce.constants import chosen_on
from benchmarks.reproduce.runs.planning.promise_rules import (
    admitted,
    beside_printed,
    placed,
    selected,
)

PAGE, SECTION = "promises.md", "Deadlines that hold"
GPUS = 960
RESUMES_S = (0.0, 60.0)
SIZES = ((960, 400, 0.8), (960, 400, 1.0), (960, 400, 1.3), (64, 50, 1.3))
LARGE = ((4096, 800, 1.3), (10_000, 2000, 1.3))
SELECTED_ON = {960: slo_jobs.SELECTOR_SEEDS, 64: slo_jobs.SMALL_SEEDS}


def _admissions(seeds: Sequence[int], days: float, resumes_s: Sequence[float]) -> Iterable[Words]:
    for resume_s in resumes_s:
        for seed in seeds if resume_s == resumes_s[0] else seeds[:1]:
            yield {"seed": seed, "days": days, "gpus": GPUS, "resume_s": resume_s}


def _admitted(results: Sequence[Done]) -> Table:
    rows: dict[str, dict[str, Cell]] = {}
    for done in results:
        found, resume_s = done.value, done.words["resume_s"]
        also = f", resumes of {resume_s:g} s" if resume_s else ""
        rows[f"seed {done.words['seed']}{also}"] = {
            "guaranteed": found["guaranteed"],
            "missed": found["missed"],
            "admission, ms: median": found["median"],
            "p99": found["p99"],
            "longest": found["longest"],
            "refused": found["fluid"] + found["plan"],
            "by the plan only": found["plan"],
            "earliest deadline, ms: median": found["offer"],
        }
    shown = (",.0f", ",.0f", ".2f", ".1f", ",.0f", ",.0f", ",.0f", ",.0f")
    return Table(dict(zip(next(iter(rows.values())), shown, strict=True)), rows)


def _sets(seeds: Sequence[int], sizes: Sequence[tuple[int, int, float]]) -> Iterable[Words]:
    for gpus, count, load in sizes:
        for seed in SELECTED_ON.get(gpus, slo_jobs.SCALE_SEEDS)[: len(seeds)]:
            yield {"gpus": gpus, "count": count, "load": load, "seed": seed}


def _selected(results: Sequence[Done]) -> Table:
    rows: dict[str, dict[str, Cell]] = {}
    for gpus, count, load in (*SIZES, *LARGE):
        asked = {"gpus": gpus, "count": count, "load": load}
        own = [done.value for done in results if asked.items() <= done.words.items()]
        if not own:
            continue
        stops = [one["stops"] for one in own if one["stops"] is not None]
        rows[f"{gpus:,} x {count:,}, {load:g}"] = {
            "sets": len(own),
            "gap, %: median": median(one["gap"] for one in own),
            "worst": max(one["gap"] for one in own),
            "CPU, ms: median": median(one["cpu_ms"] for one in own),
            "longest": max(one["cpu_ms"] for one in own),
            "stops over least laxity, median": median(stops) if stops else None,
        }
    shown = (",.0f", ".2f", ".2f", ",.0f", ",.0f", ".2f")
    return Table(dict(zip(next(iter(rows.values())), shown, strict=True)), rows)


def _printed(seeds: Sequence[int], limit_s: float) -> Iterable[Words]:
    for load in slo_jobs.LOADS:
        for seed in seeds:
            yield {"load": load, "seed": seed, "limit_s": limit_s}


def _beside(results: Sequence[Done]) -> Table:
    rows: dict[str, dict[str, Cell]] = {
        f"{done.words['load']:g}": {
            "reward over the program's": done.value["reward"]
            / max(1.0, done.value["printed reward"]),
            "the program's answer": "optimum" if done.value["optimal"] else "no proof",
            "CPU of the program over ours": done.value["printed cpu_s"]
            / max(1e-9, done.value["cpu_s"]),
        }
        for done in results
    }
    shown = (".2f", "", ",.0f")
    return Table(dict(zip(next(iter(rows.values())), shown, strict=True)), rows)


def _placements(seeds: Sequence[int]) -> Iterable[Words]:
    for large, recipes in ((False, RECIPES), (True, LARGE_RECIPES)):
        for at, _ in enumerate(recipes):
            for seed in seeds:
                yield {"large": large, "at": at, "seed": seed}


def _placed(results: Sequence[Done]) -> Table:
    rows: dict[str, dict[str, Cell]] = {}
    for large, recipes in ((False, RECIPES), (True, LARGE_RECIPES)):
        own = [done.value for done in results if done.words["large"] == large]
        rows[f"{recipes[0].nodes:,} nodes, up to {max(one.jobs for one in recipes):,} jobs"] = {
            "cases": len(own),
            "proven": sum(one["proven"] for one in own),
            "CPU, ms: median": median(one["cpu_ms"] for one in own),
            "longest": max(one["cpu_ms"] for one in own),
            "loss of Algorithm 1, %: worst": max(one["search"] for one in own),
            "of quasi-consolidation, %: worst": max(one["greedy"] for one in own),
        }
    shown = (",.0f", ",.0f", ",.0f", ",.0f", ".2f", ".2f")
    return Table(dict(zip(next(iter(rows.values())), shown, strict=True)), rows)


def _case(
    name: str,
    about: str,
    rows: str,
    run: Callable[..., Any],
    parts: Callable[..., Iterable[Words]],
    table: Callable[[Sequence[Done]], Table],
    seeds: tuple[int, ...],
    short: Form,
    full: Form,
    judged_on: tuple[str, ...],
    fitted_on: tuple[str, ...] = (),
    in_sample: str = "",
) -> Case:
    return Case(
        name=name, page=PAGE, section=SECTION, about=about, rows=rows, run=run, parts=parts,
        table=table, seeds=seeds, short=short, full=full, paper=NONE_PRINTED, judged_on=judged_on,
        fitted_on=fitted_on, in_sample=in_sample,
    )  # fmt: skip


CASES = (
    _case(
        "promises-admission",
        "Arrivals at twice the capacity of 960 GPUs, with exact run times; CPU time.", "arrivals",
        admitted, _admissions, _admitted, slo_jobs.REPLAY_SEEDS,
        Form(15, 2, {"days": 3.0, "resumes_s": RESUMES_S[:1]}),
        Form(70, 2, {"days": 3.0, "resumes_s": RESUMES_S}),
        ("arrivals-7401", "arrivals-7402"), chosen_on("dlq"),
        "Refusals of seed 7402 had been looked at when the last orders were chosen.",
    ),
    _case(
        "promises-selector",
        "The lease selector: gap to a proven bound, and CPU time.", "GPUs x jobs, load",
        selected, _sets, _selected, slo_jobs.SELECTOR_SEEDS,
        Form(15, 5, {"sizes": SIZES}), Form(90, 20, {"sizes": (*SIZES, *LARGE)}),
        ("selector-sets",), chosen_on("chronus"),
    ),
    _case(
        "promises-printed",
        "The same beside the printed program, for 960 GPUs and 400 jobs.", "load",
        beside_printed, _printed, _beside, slo_jobs.PRINTED_SEEDS,
        Form(10, words={"limit_s": 4.0}), Form(25, words={"limit_s": 10.0}), ("selector-sets",),
        chosen_on("chronus"),
    ),
    _case(
        "promises-placements",
        "Jobs that start together: the exact program against Algorithm 1 with |S| = 100,000.",
        "cases", placed, _placements, _placed, SEEDS, Form(20), Form(100, 5), ("placed-at-once",),
    ),
)  # fmt: skip
