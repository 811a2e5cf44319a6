"""Kept deadlines by policy: Chronus beside its rivals, over mixes, densities and noise.

    python -m benchmarks.papers.deadlines [--quick] [--only matrix|noise] [--policy NAME ...]
        [--seeds N] [--jobs N] [--processes N] [--json]

Every cell is the mean over the seeds; preemptions have their default costs. wDMR is the weighted
miss rate of jobs with deadlines (0 is best), BE JCT that of the others in hours. The tables are for
docs/policies/reproduction/chronus.md. Goals: in every cell the wDMR of `chronus` is below those of
`BELOW`. It is below that of `edf-preemptive` wherever more is offered than the cluster's capacity.
No promise is missed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from benchmarks.papers import deadline_cases as cases
from benchmarks.support.means import mean_row
from benchmarks.support.report import Report
from dlq_simulator.replay.engine import replay
from dlq_simulator.settings import read_settings

POLICIES = (
    "chronus", "chronus-paper", "edf", "edf-preemptive", "3sigma", "genie",
    "yarn-cs", "best-effort", "tiresias-las", "themis", "srtf",
)  # fmt: skip
QUICK_DENSITIES = (80, 120, 160)
BELOW = ("edf", "3sigma", "yarn-cs", "tiresias-las")
KNOWING = ("chronus", "chronus-paper", "3sigma", "genie", "srtf")  # with run times
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Task(NamedTuple):
    """One replay; `noise` None: run times are known exactly."""

    policy: str
    mix: str
    density: int
    seed: int
    jobs: int
    noise: float | None = None


class Ran(NamedTuple):
    """The results of a replay, or the mean of some."""

    load: float
    wdmr: float
    be_jct_h: float | None
    guaranteed: float | None
    missed: float | None
    cpu_s: float


Cell = tuple[str, int]  # mix, density
Row = Mapping[str, Ran]  # policy -> its results


def main() -> None:
    """The matrix, then the noise."""
    report = Report.begin("papers.deadlines", _options())
    options = report.options
    densities: Sequence[int] = QUICK_DENSITIES if options.quick else cases.DENSITIES
    seeds = cases.SEEDS[: 1 if options.quick else options.seeds]
    jobs = cases.QUICK_JOBS if options.quick else options.jobs
    policies = tuple(options.policy or POLICIES)
    for name in _THREADS:  # two processes share two cores
        os.environ[name] = "1"
    with ProcessPoolExecutor(options.processes) as pool:
        if options.only != "noise":
            tasks = [
                Task(policy, mix, density, seed, jobs)
                for policy in policies
                for mix in cases.MIX_NAMES
                for density in densities
                for seed in seeds
            ]
            matrix = _matrix(tasks, pool.map(run, tasks))
            tell_matrix(report, matrix, policies)
        if options.only != "matrix":
            tasks = [
                Task(policy, cases.NOISE_MIX, cases.NOISE_DENSITY, seed, jobs, noise)
                for policy in policies
                for noise in (cases.NOISES if policy in KNOWING else (None,))
                for seed in seeds
            ]
            tell_noise(report, _by_noise(tasks, pool.map(run, tasks)))
    report.end()


def run(task: Task) -> Ran:
    """One replay."""
    words = [] if task.noise is None else ["know=profiled", f"noise={task.noise}"]
    if task.policy == "3sigma" and task.noise is not None:
        words.append(f"errors={task.noise:g}")  # it has their distribution from history
    case = cases.case(task.mix, task.density, task.seed, task.jobs)
    (chosen,) = read_settings([task.policy], words, task.seed)
    result = replay(case.trace, cases.cluster(), chosen)
    found = result.metrics
    jct_s = found.be_avg_jct_s
    return Ran(
        load=case.load,
        wdmr=found.wdmr or 0.0,
        be_jct_h=None if jct_s is None else jct_s / 3600.0,
        guaranteed=found.guaranteed,
        missed=found.promises_missed,
        cpu_s=result.timing.cpu_s,
    )


def tell_matrix(report: Report, matrix: Mapping[Cell, Row], policies: Sequence[str]) -> None:
    """One line for each cell and policy, the tables, and the goals."""
    for (mix, density), row in matrix.items():
        load = next(iter(row.values())).load
        report.say(f"{mix} {density} %, load {load:.2f}")
        for policy in sorted(row, key=lambda name: row[name].wdmr):
            report.say(f"  {_rank(row, policy):2} {policy:15} {_line(row[policy])}")
    for mix in dict.fromkeys(mix for mix, _ in matrix):
        rows = {density: row for (own, density), row in matrix.items() if own == mix}
        report.say("\n" + table(f"{mix}: wDMR in % (rank)", rows, policies, _wdmr_and_rank))
        if any(ran.be_jct_h is not None for row in rows.values() for ran in row.values()):
            report.say("\n" + table(f"{mix}: BE JCT in hours", rows, policies, _be_jct))
    goals(report, matrix)


def goals(report: Report, matrix: Mapping[Cell, Row]) -> None:
    """In how many cells the order is the wanted one, and how close it is where it is closest."""
    for policy in (*BELOW, "edf-preemptive"):
        pairs = [
            (row["chronus"].wdmr, row[policy].wdmr)
            for row in matrix.values()
            if {policy, "chronus"} <= row.keys() and (policy in BELOW or row[policy].load > 1.0)
        ]
        if pairs:
            where = "" if policy in BELOW else ", load > 1"
            closest = min(other - own for own, other in pairs)
            report.figure(
                f"wDMR of chronus below {policy}{where}, or 0", sum(own < other or not own for own, other in pairs),  # noqa: E501
                "cells", at_least=len(pairs), note=f"closest: {100 * closest:+.2f} points",
            )  # fmt: skip
    missed = [row["chronus"].missed or 0 for row in matrix.values() if "chronus" in row]
    if missed:
        report.figure(
            "promises missed, mean of a replay in the worst cell", max(missed), "jobs", at_most=0
        )


def tell_noise(report: Report, found: Mapping[str, Mapping[float | None, Ran]]) -> None:
    """wDMR over the noise of estimates, as a table."""
    title = f"{cases.NOISE_MIX} {cases.NOISE_DENSITY} %, estimates after 300 s: wDMR in %"
    lines = [
        f"| {title} | " + " | ".join(f"noise {noise:g}" for noise in cases.NOISES) + " |",
        "|---|" + "---|" * len(cases.NOISES),
    ]
    for policy, by_noise in found.items():
        cells = [by_noise.get(noise) or by_noise[None] for noise in cases.NOISES]
        lines.append(
            f"| `{policy}` | " + " | ".join(f"{100 * ran.wdmr:.2f}" for ran in cells) + " |"
        )
        if cells[0].missed is not None:
            told = [f"{ran.missed or 0:.0f} of {ran.guaranteed or 0:.0f}" for ran in cells]
            lines.append(f"| `{policy}`, promises missed | " + " | ".join(told) + " |")
    report.say("\n" + "\n".join(lines))


def table(
    title: str,
    rows: Mapping[int, Row],
    policies: Sequence[str],
    told: Callable[[Row, str], str],
) -> str:
    """Policies down, densities across, as markdown."""
    heads = [f"{density} % ({next(iter(row.values())).load:.2f})" for density, row in rows.items()]
    lines = [f"| {title} | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
    told_rows = [[told(row, policy) for row in rows.values()] for policy in policies]
    lines += [
        f"| `{policy}` | " + " | ".join(cells) + " |"
        for policy, cells in zip(policies, told_rows, strict=True)
    ]
    return "\n".join(lines)


def _wdmr_and_rank(row: Row, policy: str) -> str:
    return f"{100 * row[policy].wdmr:.2f} ({_rank(row, policy)})"


def _be_jct(row: Row, policy: str) -> str:
    hours = row[policy].be_jct_h
    return "" if hours is None else f"{hours:.1f}"


def _line(ran: Ran) -> str:
    jct = "" if ran.be_jct_h is None else f", BE JCT {ran.be_jct_h:5.1f} h"
    promised = ""
    if ran.guaranteed is not None:
        promised = f", {ran.guaranteed:.0f} guaranteed, {ran.missed or 0:.1f} of them missed"
    return f"wDMR {100 * ran.wdmr:6.2f} %{jct}{promised}, {ran.cpu_s:.1f} s of CPU"


def _rank(row: Row, policy: str) -> int:
    """1 for the least wDMR; equal values share a rank."""
    return 1 + sum(ran.wdmr < row[policy].wdmr for ran in row.values())


def _matrix(tasks: Sequence[Task], ran: Iterable[Ran]) -> dict[Cell, dict[str, Ran]]:
    found: dict[Cell, dict[str, list[Ran]]] = {}
    for task, one in zip(tasks, ran, strict=True):
        cell = found.setdefault((task.mix, task.density), {})
        cell.setdefault(task.policy, []).append(one)
    return {
        cell: {name: mean_row(runs) for name, runs in row.items()} for cell, row in found.items()
    }


def _by_noise(tasks: Sequence[Task], ran: Iterable[Ran]) -> dict[str, dict[float | None, Ran]]:
    found: dict[str, dict[float | None, list[Ran]]] = {}
    for task, one in zip(tasks, ran, strict=True):
        found.setdefault(task.policy, {}).setdefault(task.noise, []).append(one)
    return {
        name: {noise: mean_row(runs) for noise, runs in row.items()} for name, row in found.items()
    }


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="one seed, three densities, few jobs")
    parser.add_argument("--only", choices=("matrix", "noise"))
    parser.add_argument("--policy", action="append", choices=POLICIES)
    parser.add_argument("--seeds", type=int, default=len(cases.SEEDS), help="how many of them")
    parser.add_argument("--jobs", type=int, default=cases.JOBS, help="at 100 %%")
    parser.add_argument("--processes", type=int, default=2)
    return parser


if __name__ == "__main__":
    main()
