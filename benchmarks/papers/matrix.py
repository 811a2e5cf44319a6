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
best-effort JCT. Each workload also has a metric of its own (`matrix_cases`), held to 1.02 times
the best; the summary counts both. `--also` shows variants that do not count. A cell may be a trace
of one's own: `--cells philly.csv@60x8 philly.csv@60x8+mixed`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor

from benchmarks.papers import matrix_cases as cases
from benchmarks.papers.matrix_tables import Judged, Key, cell_table, figures, markdown, summary
from benchmarks.papers.matrix_verdicts import Ran, Row, own_verdict, verdicts
from benchmarks.reproduce.runs.matrix_cells import EVERY, KNOWS, Task, columns, run, tasks
from benchmarks.support.report import Report
from dlq_master.policy.priced.names import DEFAULT
from dlq_master.policy.registry.presets import PRESETS
from dlq_simulator.priced.settings import KNOWN

BEFORE_IT = "chronus"  # the challenger as long as there is no default
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def main(arguments: Sequence[str] | None = None) -> None:
    """Every cell as soon as it is done, then the summary."""
    report = Report.begin("papers.matrix", _options(), arguments)
    options = report.options
    contenders = (*dict.fromkeys((*_presets(options), options.policy)), *options.also)
    seeds = cases.SEEDS[: options.seeds]
    asked = {
        name: list(tasks(name, contenders, seeds, options.jobs, options.know, options.set))
        for name in options.cells
    }
    rows: dict[Key, Row] = {}
    found: dict[Key, Judged] = {}
    for name, results in _ran_all(asked, options.workers):
        for know, row in columns(asked[name], results, options.know, report.say).items():
            key = (name, know)
            judged = {who: ran for who, ran in row.items() if who not in options.also}
            cell = cases.cell(name)
            rows[key] = row
            found[key] = Judged(
                verdicts(judged, options.policy, mixed=cell.mixed),
                own_verdict(judged, options.policy, cell.metric),
            )
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
    asked: Mapping[str, Sequence[Task]], workers: int
) -> Iterator[tuple[str, Iterable[Ran | str]]]:
    """Each cell with its results, in order; several processes work ahead."""
    if workers == 1:
        for name, todo in asked.items():
            yield name, map(run, todo)
        return
    for name in _THREADS:  # as many processes as cores
        os.environ[name] = "1"
    with ProcessPoolExecutor(workers) as pool:
        yield from {name: pool.map(run, todo) for name, todo in asked.items()}.items()


def _presets(options: argparse.Namespace) -> tuple[str, ...]:
    return tuple(options.policies or EVERY)


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
