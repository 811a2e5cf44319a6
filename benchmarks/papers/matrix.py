"""`dlq` against every preset, on every workload, with the same knowledge of run times and the same
costs for all.

    python -m benchmarks.papers.matrix [--policy NAME] [--cells NAME ...] [--policies NAME ...]
        [--also 'NAME KEY=VALUE' ...] [--know known profiled unknown] [--set KEY=VALUE ...]
        [--jobs N] [--seeds N] [--workers 2] [--markdown] [--json]

A cell is a workload (`matrix_cases`) and a knowledge of run times. Presets that use run times are
told those of the cell. Presets that use none are alike in every column. Where nodes are rented by
need, the policies that rent (all are told all run times) are compared among themselves, in the
first column. Preemptions and spreading have their default costs, and all place by default (`--set
place=consolidate`: all alike). Figures are means over the seeds, a file being one. Goals
(`matrix_verdicts`): average JCT at most 1.03 times that of the best preset, wDMR at most 0.005
more, cost at most 1.03 times. On mixed workloads no preset beats the challenger on both wDMR and
best-effort JCT. `--also` shows variants that do not count. A cell may be a trace of one's own:
`--cells philly.csv@60x8 philly.csv@60x8+mixed`.
"""

from __future__ import annotations

import argparse
import gc
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import NamedTuple

from benchmarks.papers import matrix_cases as cases
from benchmarks.papers.matrix_tables import Key, cell_table, figures, markdown, summary
from benchmarks.papers.matrix_verdicts import Ran, Row, Verdict, verdicts
from benchmarks.support.means import mean_row
from benchmarks.support.report import Report
from dlq_master.policy.priced.names import DEFAULT
from dlq_master.policy.registry.presets import PRESETS
from dlq_simulator.command import COLLECT_AFTER
from dlq_simulator.errors import SimulateError
from dlq_simulator.metrics import Metrics
from dlq_simulator.priced.settings import KNOWN, NAMES, PricedSettings, rents
from dlq_simulator.refusals import silent_stdout
from dlq_simulator.replay.engine import replay
from dlq_simulator.results.report import Result
from dlq_simulator.settings import read_all
from dlq_simulator.world_settings import PROFILING, WORLD

KNOWS = ("known", "profiled", "unknown")
BEFORE_IT = "chronus"  # the challenger as long as there is no default
TOO_SMALL = ("gpuaas-milp",)  # for a handful of jobs
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class Task(NamedTuple):
    """One replay: `contender` is a preset, and settings of its own if it is a variant."""

    cell: str
    contender: str
    know: str | None  # None: it does not apply
    seed: int
    jobs: int
    words: tuple[str, ...] = ()


def main(arguments: Sequence[str] | None = None) -> None:
    """Every cell as soon as it is done, then the summary."""
    report = Report.begin("papers.matrix", _options(), arguments)
    options = report.options
    contenders = (*dict.fromkeys((*_presets(options), options.policy)), *options.also)
    tasks = {name: list(_tasks(name, contenders, options)) for name in options.cells}
    rows: dict[Key, Row] = {}
    found: dict[Key, list[Verdict]] = {}
    for name, results in _ran_all(tasks, options.workers):
        for know, row in _columns(tasks[name], results, options.know, report).items():
            key = (name, know)
            judged = {who: ran for who, ran in row.items() if who not in options.also}
            cell = cases.cell(name)
            rows[key] = row
            found[key] = verdicts(judged, options.policy, mixed=cell.mixed)
            report.say(f"\n{name}, {know} ({cell.about})")
            report.say(cell_table(row, options.policy))
            figures(report, key, found[key], options.policy)
            if cell.jobs_per_cpu_s is not None and options.policy in row:
                report.figure(
                    f"{name}, {know}: {options.policy}", row[options.policy].jobs_per_cpu_s, "jobs/CPU s",  # noqa: E501
                    at_least=cell.jobs_per_cpu_s,
                )  # fmt: skip
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
    gc.set_threshold(COLLECT_AFTER)  # as `dlq simulate` does
    case = cases.case(task.cell, task.seed, task.jobs)
    name, *own = task.contender.split()
    words = [*task.words, *own, *([f"know={task.know}"] if task.know else [])]
    try:
        (chosen,) = read_all([name], words, task.seed, rented_only=cases.cell(task.cell).rented)
        with silent_stdout():
            if not isinstance(chosen, PricedSettings):
                return _ran(replay(case.trace, case.cluster, chosen))
            from dlq_simulator.priced import run as renting

            return _ran(renting.run(case.trace, case.cluster, chosen))
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
    """A preset that uses no run times is replayed once for all columns."""
    seeds = cases.SEEDS[: options.seeds if cases.cell(cell).drawn else 1]
    rented = cases.cell(cell).rented
    for contender, seed in product(contenders, seeds):
        name = contender.split()[0]
        if rented != rents(name, rented) or not (rented or name in PRESETS):
            continue
        settings = KNOWN[name] if rented else PRESETS[name].settings
        knows = options.know if "know" in settings else (None,)
        words = tuple(word for word in options.set if word.partition("=")[0] in _known(settings))
        for know in knows:
            yield Task(cell, contender, know, seed, options.jobs, words)


def _known(settings: Sequence[str]) -> tuple[str, ...]:
    """With their settings of the world."""
    return (*settings, *WORLD, *(PROFILING if "know" in settings else ()))


def _columns(
    tasks: Sequence[Task], results: Iterable[Ran | str], knows: Sequence[str], report: Report
) -> dict[str, Row]:
    """Knowledge -> contender -> the mean over the seeds; a contender that cannot run is named and
    left out.
    """
    found: dict[str, dict[str, list[Ran]]] = {know: {} for know in knows}
    for task, ran in zip(tasks, results, strict=True):
        if isinstance(ran, str):
            report.say(f"{task.cell}: {task.contender} ({task.know}) is left out: {ran}")
            continue
        for know in [task.know] if task.know else _columns_of(task.cell, knows):
            found[know].setdefault(task.contender, []).append(ran)
    return {
        know: {name: mean_row(runs) for name, runs in row.items()}
        for know, row in found.items()
        if row
    }


def _columns_of(cell: str, knows: Sequence[str]) -> Sequence[str]:
    """The columns for a preset without run times: all, except for rented nodes, whose policies have
    all run times.
    """
    return [know for know in knows if know == "known"] if cases.cell(cell).rented else knows


def _presets(options: argparse.Namespace) -> tuple[str, ...]:
    renting = tuple(name for name in NAMES if name not in TOO_SMALL)
    return tuple(options.policies or (*PRESETS, *renting))


def _cell(name: str) -> str:
    cases.cell(name)
    return name


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    default = DEFAULT if DEFAULT in PRESETS else BEFORE_IT
    every = tuple(dict.fromkeys((*PRESETS, *KNOWN)))
    parser.add_argument("--policy", default=default, choices=every, help="the challenger")
    parser.add_argument(
        "--cells", nargs="+", type=_cell, metavar="NAME", default=tuple(cases.CELLS)
    )
    parser.add_argument("--policies", nargs="+", choices=every, metavar="NAME")
    parser.add_argument("--also", nargs="+", default=[], metavar="'NAME KEY=VALUE'")
    parser.add_argument("--know", nargs="+", choices=KNOWS, default=KNOWS)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--jobs", type=int, default=cases.JOBS, help="of a drawn workload")
    parser.add_argument("--seeds", type=int, default=1, help="how many of them")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument(
        "--markdown", action="store_true", help="the tables of docs/policies/reproduction/"
    )
    return parser


if __name__ == "__main__":
    main()
