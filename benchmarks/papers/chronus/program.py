"""The integer program of Chronus by size: how long a call takes, and where it gives no answer.

    python -m benchmarks.papers.chronus.program [--full] [--limit SECONDS] [--json]

The paper's figure 7d has the latency of its solver over cluster and job scale: below ten seconds.
Here HiGHS solves the corrected program (`promise.solver.printed`), on sets of `slo_jobs`. Each set
is asked twice: for the most reward (a cycle), and for any solution that keeps all last deadlines
(admission). The short form has one seed and the limit that `chronus-paper` has, the full one three
seeds and sixty seconds. Answers near the limit depend on the machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from benchmarks.papers import slo_jobs
from benchmarks.support.report import Report
from dlq_master.model.jobs.reward import soft
from dlq_master.policy.promise.capacity.leases import Grid, SloJob, last_slots, within
from dlq_master.policy.promise.capacity.rules import SOLVER_S
from dlq_master.policy.promise.solver.printed import Solved, time_indexed

SEEDS = (7301, 7302, 7303)
SIZES = ((64, 25), (64, 50), (256, 100), (512, 200), (960, 400), (1920, 800))  # GPUs, jobs
LOADS = (0.8, 1.3)
FULL_S = 60.0


class ProgramRow(NamedTuple):
    """One set under one question. `gap`: of the reward to the proven bound; None: no solution was
    found, or any will do. `answer`: in words.
    """

    gpus: int
    jobs: int
    load: float
    seed: int
    question: str
    variables: int
    wall_s: float
    answer: str
    gap: float | None


def main() -> None:
    """The table, the largest size that is answered, and the longest answer."""
    report = Report.begin("papers.chronus.program", _options())
    limit_s = report.options.limit or (FULL_S if report.options.full else SOLVER_S)
    rows = []
    for row in ran(limit_s, SEEDS if report.options.full else SEEDS[:1]):
        rows.append(row)
        report.say(_line(row))
    report.say("\n" + table(rows))
    for question in ("most reward", "any solution"):
        open_ones = ("a solution", "no answer")
        asked = [row for row in rows if row.question == question]
        proven = [row for row in asked if row.answer not in open_ones]
        most = max((row.variables for row in proven), default=0)
        report.figure(f"{question}: the largest program with a proven answer", most, "variables")
    report.end()


def ran(limit_s: float, seeds: tuple[int, ...]) -> Iterator[ProgramRow]:
    """Every size, load and question."""
    for gpus, count in SIZES:
        for load in LOADS:
            for seed in seeds:
                for row in asked_twice(gpus, count, load, seed, limit_s):
                    yield ProgramRow(**row)


def asked_twice(
    gpus: int, count: int, load: float, seed: int, limit_s: float
) -> list[dict[str, Any]]:
    """A set under both questions: the fields of two rows."""
    grid = Grid(term_s=slo_jobs.TERM_S, capacity=(gpus,), whole_leases=True)
    jobs = drawn(gpus, count, load, seed)
    rows = []
    for objective in (True, False):
        asked = jobs if objective else [_promised(job, grid) for job in jobs]
        begun_s = time.perf_counter()
        made = time_indexed(asked, grid, limit_s, objective=objective)
        row = ProgramRow(
            gpus=gpus,
            jobs=count,
            load=load,
            seed=seed,
            question="most reward" if objective else "any solution",
            variables=_variables(jobs, grid),
            wall_s=time.perf_counter() - begun_s,
            answer=_answer(made, objective=objective),
            gap=1 - made.objective / made.bound if objective and made.plan else None,
        )
        rows.append(row._asdict())
    return rows


def drawn(gpus: int, count: int, load: float, seed: int) -> list[SloJob]:
    """A set of `slo_jobs` as the program reads it."""
    rows = slo_jobs.jobs(gpus, count, load, seed)
    return [
        SloJob(str(number), row.gpus, row.runtime_s, soft(list(row.steps)))
        for number, row in enumerate(rows)
    ]


def _promised(job: SloJob, grid: Grid) -> SloJob:
    reach = within(job, grid)
    return job._replace(promised=reach[-1]) if reach else job


def _variables(jobs: list[SloJob], grid: Grid) -> int:
    count = 0
    for job in jobs:
        steps = within(job, grid)
        count += len(steps) + (last_slots(job, steps[-1], grid) if steps else 0)
    return count


def _answer(made: Solved, *, objective: bool) -> str:
    if made.impossible:
        return "proven that there is none"
    if made.plan is None:
        return "no answer"
    if not objective:
        return "found"
    return "optimum" if made.optimal else "a solution"


def table(rows: list[ProgramRow]) -> str:
    """As markdown, one line for a set."""
    lines = [
        "| GPUs x jobs, load | variables | most reward | any solution |",
        "|---|---|---|---|",
    ]
    for most, any_one in zip(rows[::2], rows[1::2], strict=True):
        size = f"{most.gpus:,} x {most.jobs}, {most.load:g}"
        lines.append(f"| {size} | {most.variables:,} | {cell(most)} | {cell(any_one)} |")
    return "\n".join(lines)


def cell(row: ProgramRow) -> str:
    """Its answer in a table."""
    gap = "" if row.gap is None or row.gap < 1e-9 else f", gap {row.gap:.1%}"
    return f"{row.answer}{gap}, {row.wall_s:.1f} s"


def _line(row: ProgramRow) -> str:
    return f"{row.gpus} x {row.jobs}, load {row.load:g}, {row.question}: {cell(row)}"


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--full", action="store_true", help="three seeds, sixty seconds a call")
    parser.add_argument("--limit", type=float, help="seconds a call")
    return parser


if __name__ == "__main__":
    main()
