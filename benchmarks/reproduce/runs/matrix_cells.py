"""One replay of the matrix, and all replays of a cell."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

from benchmarks.papers import matrix_cases as cases
from benchmarks.papers.matrix_verdicts import Ran, Row
from benchmarks.support.means import mean_row
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
TOO_SMALL = ("gpuaas-milp", "gpuaas-hierarchical")  # programs that take minutes here
EVERY = (*PRESETS, *(name for name in NAMES if name not in TOO_SMALL))


class Task(NamedTuple):
    """One replay: `contender` is a preset, and settings of its own if it is a variant."""

    cell: str
    contender: str
    know: str | None  # None: it does not apply
    seed: int
    jobs: int
    words: tuple[str, ...] = ()


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


def replayed(
    cell: str, contender: str, know: str | None, seed: int, jobs: int
) -> dict[str, Any] | str:
    """The same from plain words and as plain values, for `benchmarks.reproduce`."""
    found = run(Task(cell, contender, know, seed, jobs))
    return found if isinstance(found, str) else found._asdict()


def tasks(
    cell: str,
    contenders: Sequence[str],
    seeds: Sequence[int],
    jobs: int,
    knows: Sequence[str] = KNOWS,
    words: Sequence[str] = (),
) -> Iterator[Task]:
    """A preset that uses no run times is replayed once for all columns, and a file for one seed."""
    rented = cases.cell(cell).rented
    for contender, seed in product(contenders, seeds if cases.cell(cell).drawn else seeds[:1]):
        name = contender.split()[0]
        if rented != rents(name, rented) or not (rented or name in PRESETS):
            continue
        settings = KNOWN[name] if rented else PRESETS[name].settings
        told = knows if "know" in settings else (None,)
        own = tuple(word for word in words if word.partition("=")[0] in _known(settings))
        for know in told:
            yield Task(cell, contender, know, seed, jobs, own)


def _known(settings: Sequence[str]) -> tuple[str, ...]:
    """With their settings of the world."""
    return (*settings, *WORLD, *(PROFILING if "know" in settings else ()))


def columns(
    asked: Sequence[Task],
    results: Iterable[Ran | str],
    knows: Sequence[str],
    say: Callable[[str], None],
) -> dict[str, Row]:
    """Knowledge -> contender -> the mean over the seeds; a contender that cannot run is named and
    left out.
    """
    found: dict[str, dict[str, list[Ran]]] = {know: {} for know in knows}
    for task, ran in zip(asked, results, strict=True):
        if isinstance(ran, str):
            say(f"{task.cell}: {task.contender} ({task.know}) is left out: {ran}")
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
