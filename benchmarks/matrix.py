"""`dlq` against every preset, on every workload, with the same knowledge of run times and the same costs for all.

    python -m benchmarks.matrix [--policy NAME] [--cells NAME ...] [--policies NAME ...] [--also 'NAME KEY=VALUE' ...]
                                [--know known profiled unknown] [--set KEY=VALUE ...] [--jobs N] [--seeds N]
                                [--workers 2] [--markdown] [--json]

A cell is a workload (`matrix_cases`) and what is known of run times. Presets that can be told run times are told what the
cell says; those that know nothing of them are in every column as they are. A `gpuaas` policy is told all run times, and is
in the first column only. Preemptions and spreading cost what they cost by default, and everybody places as it does by default
(`--set place=consolidate`: all alike). Figures are means over the seeds, a file being one.
Goals (`matrix_verdicts`): average JCT at most 1.03 times that of the best preset, wDMR at most 0.005 more, cost at most 1.03 times;
on mixed workloads no preset beats the challenger on both wDMR and best-effort JCT. `--also` shows variants that do not count.
A cell may be a trace of one's own: `--cells philly.csv@60x8 philly.csv@60x8+mixed`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import NamedTuple

from benchmarks import matrix_cases as cases
from benchmarks.matrix_tables import Key, cell_table, figures, markdown, summary
from benchmarks.matrix_verdicts import Ran, Row, Verdict, verdicts
from benchmarks.means import mean_row
from benchmarks.report import Report

from dlq_master.policy.registry import PRESETS
from dlq_simulator.engine import replay
from dlq_simulator.errors import SimulateError
from dlq_simulator.metrics import Metrics
from dlq_simulator.priced.settings import KNOWN, NAMES, PricedSettings
from dlq_simulator.report import Result
from dlq_simulator.settings import read_all
from dlq_simulator.solver_noise import silent_stdout
from dlq_simulator.world_settings import PROFILING, WORLD

KNOWS = ("known", "profiled", "unknown")
DEFAULT, BEFORE_IT = "dlq", "chronus"
TOO_SMALL = ("gpuaas-milp",)  # for a handful of jobs
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Task(NamedTuple):
    """One replay: `contender` is a preset, and settings of its own if it is a variant."""

    cell: str
    contender: str
    know: str | None  # None: it cannot be told
    seed: int
    jobs: int
    words: tuple[str, ...] = ()


def main(arguments: Sequence[str] | None = None) -> None:
    """Every cell as soon as it is done, then what it comes to."""
    report = Report.begin("matrix", _options(), arguments)
    options = report.options
    contenders = (*dict.fromkeys((*_presets(options), options.policy)), *options.also)
    tasks = {name: list(_tasks(name, contenders, options)) for name in options.cells}
    rows: dict[Key, Row] = {}
    found: dict[Key, list[Verdict]] = {}
    for name, results in _ran_all(tasks, options.workers):
        for know, row in _columns(tasks[name], results, options.know, report).items():
            key = (name, know)
            judged = {who: ran for who, ran in row.items() if who not in options.also}
            rows[key] = row
            found[key] = verdicts(judged, options.policy, mixed=cases.cell(name).mixed)
            report.say(f"\n{name}, {know} ({cases.cell(name).about})")
            report.say(cell_table(row, options.policy))
            figures(report, key, found[key], options.policy)
    if options.markdown:
        report.say("\n" + markdown(rows, found, options.policy))
    report.say("")
    summary(report, found, options.policy)
    report.details["cells"] = [
        {
            "workload": name,
            "know": know,
            "presets": {who: ran._asdict() for who, ran in row.items()},
        }
        for (name, know), row in rows.items()
    ]
    report.end()


def _ran_all(
    tasks: Mapping[str, Sequence[Task]], workers: int
) -> Iterator[tuple[str, Iterable[Ran | str]]]:
    """Each cell with its results, in order; several processes work ahead."""
    if workers == 1:
        for name, todo in tasks.items():
            yield name, map(run, todo)
        return
    for name in _THREADS:  # as many processes as cores
        os.environ[name] = "1"
    with ProcessPoolExecutor(workers) as pool:
        yield from {name: pool.map(run, todo) for name, todo in tasks.items()}.items()


def run(task: Task) -> Ran | str:
    """One replay, or why it cannot be."""
    case = cases.case(task.cell, task.seed, task.jobs)
    name, *own = task.contender.split()
    words = [*task.words, *own, *([f"know={task.know}"] if task.know else [])]
    try:
        (chosen,) = read_all([name], words, task.seed)
        if not isinstance(chosen, PricedSettings):
            with silent_stdout():
                return _ran(replay(case.trace, case.cluster, chosen))
        from dlq_simulator.priced import run as renting

        if case.rented is None:
            return "there is nothing to rent"
        with silent_stdout():
            return _ran(renting.run(case.trace, case.rented, chosen))
    except SimulateError as error:
        return str(error)


def _ran(result: Result) -> Ran:
    found: Metrics = result.metrics
    return Ran(
        jobs=found.jobs,
        refused=found.refused,
        avg_jct_s=found.avg_jct_s or 0.0,
        be_jct_s=found.be_avg_jct_s,
        wdmr=found.wdmr,
        cost=None if found.cost is None else found.cost + (found.tardiness_cost or 0.0),
        guaranteed=found.guaranteed,
        missed=found.promises_missed,
        preemptions=found.preemptions,
        cpu_s=result.timing.cpu_s,
    )


def _tasks(cell: str, contenders: Sequence[str], options: argparse.Namespace) -> Iterator[Task]:
    """Who cannot be told run times is replayed once for all columns."""
    seeds = cases.SEEDS[: options.seeds if cases.cell(cell).drawn else 1]
    rents = cases.case(cell, seeds[0], options.jobs).rented is not None
    for contender, seed in product(contenders, seeds):
        name = contender.split()[0]
        if name in NAMES and not rents:
            continue
        knows = options.know if name in PRESETS and "know" in PRESETS[name].settings else (None,)
        words = _words(name, options.set)
        for know in knows:
            yield Task(cell, contender, know, seed, options.jobs, words)


def _words(name: str, assignments: Sequence[str]) -> tuple[str, ...]:
    """Those that it knows, as `dlq simulate` gives them out."""
    own = PRESETS[name].settings if name in PRESETS else KNOWN[name]
    return tuple(
        word
        for word in assignments
        if word.partition("=")[0] in (*own, *WORLD, *(PROFILING if "know" in own else ()))
    )


def _columns(
    tasks: Sequence[Task], results: Iterable[Ran | str], knows: Sequence[str], report: Report
) -> dict[str, Row]:
    """Knowledge -> contender -> the mean over the seeds; who could not run is left out, and that is told."""
    found: dict[str, dict[str, list[Ran]]] = {know: {} for know in knows}
    for task, ran in zip(tasks, results, strict=True):
        if isinstance(ran, str):
            report.say(f"{task.cell}: {task.contender} ({task.know}) is left out: {ran}")
            continue
        for know in [task.know] if task.know else _columns_of(task.contender, knows):
            found[know].setdefault(task.contender, []).append(ran)
    return {
        know: {name: mean_row(runs) for name, runs in row.items()} for know, row in found.items()
    }


def _columns_of(contender: str, knows: Sequence[str]) -> Sequence[str]:
    """Of who is not told: all, but for those that have all run times from elsewhere."""
    return [know for know in knows if know == "known"] if contender.split()[0] in NAMES else knows


def _presets(options: argparse.Namespace) -> tuple[str, ...]:
    renting = tuple(name for name in NAMES if name not in TOO_SMALL)
    return tuple(options.policies or (*PRESETS, *renting))


def _cell(name: str) -> str:
    cases.cell(name)
    return name


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    default = DEFAULT if DEFAULT in PRESETS else BEFORE_IT
    parser.add_argument("--policy", default=default, choices=tuple(PRESETS), help="the challenger")
    parser.add_argument(
        "--cells", nargs="+", type=_cell, metavar="NAME", default=tuple(cases.CELLS)
    )
    parser.add_argument("--policies", nargs="+", choices=(*PRESETS, *NAMES), metavar="NAME")
    parser.add_argument("--also", nargs="+", default=[], metavar="'NAME KEY=VALUE'")
    parser.add_argument("--know", nargs="+", choices=KNOWS, default=KNOWS)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--jobs", type=int, default=cases.JOBS, help="of a drawn workload")
    parser.add_argument("--seeds", type=int, default=1, help="how many of them")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument(
        "--markdown", action="store_true", help="the tables of docs/reproduction.md"
    )
    return parser


if __name__ == "__main__":
    main()
