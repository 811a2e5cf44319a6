"""Chronus beside its baselines: misses and the others' completion, over mixes and densities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from benchmarks.papers import deadline_cases as cases
from benchmarks.papers.deadlines import KNOWING, POLICIES
from benchmarks.reproduce.case import NONE_PRINTED, Case, Done, Figure, Form, Table, Words
from benchmarks.reproduce.constants import chosen_on
from benchmarks.reproduce.figures.chronus import over_density, over_noise
from benchmarks.reproduce.runs.deadline_cells import chronus
from benchmarks.support.means import means

SECTION = "Chronus beside what it is compared with"
HOUR_S = 3600.0
NOISY = f"{cases.NOISE_MIX}, {cases.NOISE_DENSITY} %"


def _parts(seeds: Sequence[int], jobs: int, densities: Sequence[int], mix: str) -> Iterable[Words]:
    for policy in POLICIES:
        for density in densities:
            for seed in seeds:
                yield {
                    "policy": policy,
                    "mix": mix,
                    "density": density,
                    "seed": seed,
                    "jobs": jobs,
                }


def _noisy(seeds: Sequence[int], jobs: int, noises: Sequence[float]) -> Iterable[Words]:
    for policy in POLICIES:
        for noise in noises if policy in KNOWING else (None,):
            for seed in seeds:
                yield {
                    "policy": policy,
                    "mix": cases.NOISE_MIX,
                    "density": cases.NOISE_DENSITY,
                    "seed": seed,
                    "jobs": jobs,
                    "noise": noise,
                }


def _table(figure: str, results: Sequence[Done]) -> Table:
    """Policies down, densities with their loads across."""
    columns = {}
    rows: dict[str, dict[str, str]] = {f"`{name}`": {} for name in POLICIES}
    for density in dict.fromkeys(done.words["density"] for done in results):
        found = {
            policy: means(
                [
                    done.value
                    for done in results
                    if (done.words["policy"], done.words["density"]) == (policy, density)
                ]
            )
            for policy in POLICIES
        }
        head = f"{density} % ({found[POLICIES[0]]['load']:.2f})"
        columns[head] = ""
        for policy, row in found.items():
            value = row[figure]
            if figure == "wdmr":
                rank = 1 + sum((other["wdmr"] or 0) < (value or 0) for other in found.values())
                rows[f"`{policy}`"][head] = f"{100 * (value or 0):.2f} ({rank})"
            else:
                rows[f"`{policy}`"][head] = "" if value is None else f"{value:.1f}"
    return Table(columns, rows)


def _noise(results: Sequence[Done]) -> Table:
    noises = sorted({done.words["noise"] or 0.0 for done in results})
    columns = {f"noise {noise:g}": "" for noise in noises}
    rows: dict[str, dict[str, str]] = {}
    for policy in POLICIES:
        own = [done for done in results if done.words["policy"] == policy]
        for noise in noises:
            alike = [done.value for done in own if done.words["noise"] in (noise, None)]
            found = means(alike)
            head = f"noise {noise:g}"
            rows.setdefault(f"`{policy}`", {})[head] = f"{100 * (found['wdmr'] or 0):.2f}"
            if found["guaranteed"] is not None:
                missed = sum(value["missed"] or 0 for value in alike)
                told = f"{missed:.0f} of {sum(value['guaranteed'] for value in alike):.0f}"
                rows.setdefault(f"`{policy}`, promises missed", {})[head] = told
    return Table(columns, rows)


def _case(mix: str, figure: str, about: str) -> Case:
    made: Callable[[Sequence[Done]], Table] = partial(_table, figure)
    return Case(
        name=f"chronus-{mix}-{figure.partition('_')[0]}",
        page="chronus.md",
        section=SECTION,
        about=about,
        rows="policy",
        run=chronus,
        parts=_parts,
        table=made,
        seeds=cases.SEEDS,
        short=Form(18, words={"jobs": 150, "densities": [80, 120, 160], "mix": mix}),
        full=Form(
            900, seeds=3, words={"jobs": 300, "densities": list(cases.DENSITIES), "mix": mix}
        ),
        paper=NONE_PRINTED,
        judged_on=("chronus-drawn",),
        fitted_on=chosen_on("chronus"),
        in_sample=IN_SAMPLE,
        figure=Figure(f"`{mix}`: policies over the density of jobs.", over_density(figure)),
    )


IN_SAMPLE = "The constants of `chronus` were chosen on seed 7501; its rivals have none of ours."
MISSES = "wDMR in % and rank, over the density of deadlines (and the load)."
OTHERS = "Average JCT of best-effort jobs in hours, over the density of deadlines (and the load)."
CASES = (
    _case("slo", "wdmr", f"`slo`: {MISSES}"),
    _case("mix1", "wdmr", f"`mix1`: {MISSES}"),
    _case("mix1", "be_jct_h", f"`mix1`: {OTHERS}"),
    _case("mix2", "wdmr", f"`mix2`: {MISSES}"),
    _case("mix2", "be_jct_h", f"`mix2`: {OTHERS}"),
    Case(
        name="chronus-errors",
        page="chronus.md",
        section=SECTION,
        about=f"`{NOISY}`, estimates after trials of 300 s: wDMR in %, and promises missed.",
        rows="policy",
        run=chronus,
        parts=_noisy,
        table=_noise,
        seeds=cases.SEEDS,
        short=Form(28, words={"jobs": 150, "noises": [0.0, 0.2, 0.4]}),
        full=Form(600, seeds=3, words={"jobs": 300, "noises": list(cases.NOISES)}),
        paper=NONE_PRINTED,
        judged_on=("chronus-drawn",),
        fitted_on=chosen_on("chronus"),
        in_sample=IN_SAMPLE,
        figure=Figure("Misses over the error of estimates.", over_noise),
    ),
)
