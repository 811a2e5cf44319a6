"""Run times that nobody tells: of each kind and number of GPUs, from what earlier jobs took there.

One model for each family (`performance`). For jobs that say how many iterations they make it
forecasts the run time, from iterations, GPUs, the speed of one and their speedup together. For
others it forecasts only how the run time falls with the GPUs, from jobs that were seen on several
shapes. Their level is the family's usual one. Long jobs are given more GPUs, and a model without
that knowledge would learn that more GPUs take longer.

Families with too few known jobs share one model. The size of the network counts in it, if the
profiler has measured that. Before there is one, jobs are taken to need an hour on one GPU, or the
usual time. GPUs then speed them up as they do medium networks (g to the power of 0.85). A job's own
measurements are better than those of others: `refined` by its own speed, once that was measured.

All of this follows from the facts that are kept (`model/jobs/machine_runs.py`) and how many of
them count. Levels see all of these. Models see them up to a number of the schedule `fitted_to`, and
deal them to folds by one seed. So it does not matter when somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import exp, fsum, log
from typing import NamedTuple

from dlq_master.model.jobs.machine_runs import (
    KEPT,
    MachineRun,
    MachineRuns,
    fitted_to,
    no_runs,
)
from dlq_master.model.late import np
from dlq_master.model.values import median
from dlq_master.policy.priced.catalogue import Floats
from dlq_master.policy.priced.performance import FEWEST, PastRun, Performance, fit

SEED = 0  # by which runs are dealt to folds
_HOUR_S, _SCALING = 3600.0, 0.85


class Kin(NamedTuple):
    """The knowledge of a job before it starts. None: its iterations, or the size of its network,
    are not known.
    """

    family: str
    iterations: int | None = None
    model_bytes: float | None = None


class JobShape(NamedTuple):
    """So many GPUs of one kind, by its place in the catalogue."""

    kind: int
    gpus: int


class Took(NamedTuple):
    """All of a job takes so long on so many GPUs, each so fast."""

    gpus: int
    speed: float
    time_s: float


class _Group(NamedTuple):
    """Jobs that share a model: of one family or of all (None), with iterations or without, with
    networks of known sizes or of any.
    """

    family: str | None
    counts: bool
    sized: bool = False


_Jobs = list[tuple[MachineRun, ...]]  # the facts of each job, in the order in which they came


class LearnedTimes:
    """`speeds`: of one GPU of each kind; `most`: GPUs of the largest node; `runs`: the facts.

    Models are fitted when they are asked for, so that a crowd of jobs that end together costs one
    fit.
    """

    def __init__(
        self, speeds: tuple[float, ...], most: int, runs: MachineRuns | None = None
    ) -> None:
        self.speeds = speeds
        self.most = most
        self.runs = no_runs() if runs is None else runs
        self._count = self._fitted_to = 0
        self._levels: dict[_Group, list[float]] = {}
        self._jobs: dict[_Group, _Jobs] = {}  # that models see
        self._models: dict[_Group, tuple[_Jobs, Performance | None]] = {}
        self.look(self.runs.total)

    def add(self, kin: Kin, found: Iterable[Took], job: str) -> None:
        """A job that has ended, with what was measured of it; it counts at once."""
        iterations, model_bytes = float(kin.iterations or 0), kin.model_bytes or 0.0
        for one in found:
            self.runs.append(MachineRun(0.0, *one, iterations, model_bytes, kin.family, job))
        self.look(self.runs.total)

    def look(self, count: int) -> bool:
        """So many of all facts count from now on; False: that is nothing new."""
        if count == self._count:
            return False
        self._count = count
        grouped = _grouped(self._newest(count))
        self._levels = {group: [*map(_level, jobs)] for group, jobs in grouped.items()}
        fitted = fitted_to(count)
        if fitted != self._fitted_to:
            self._fitted_to = fitted
            self._jobs = _grouped(self._newest(fitted))
            kept = self._models.items()
            self._models = {at: one for at, one in kept if self._jobs.get(at, []) == one[0]}
        return True

    def times(self, kin: Kin) -> Floats:
        """Seconds, by kind and GPUs - 1."""
        counts, sized = bool(kin.iterations), bool(kin.model_bytes)
        groups = [_Group(kin.family, counts), _Group(None, counts, sized), _Group(None, counts)]
        models = ((group, found) for group in groups if (found := self._model(group)))
        model = next(models, None)
        known = (self._levels.get(group) for group in groups)
        level = next((median(levels) for levels in known if levels), _HOUR_S)
        scale = 1.0 if counts and model is not None else level
        return np.array(
            [
                [scale * _time(model, kin, g, v) for g in range(1, self.most + 1)]
                for v in self.speeds
            ]
        )

    def _newest(self, count: int) -> Iterator[MachineRun]:
        """The latest of the first so many facts that there ever were."""
        begin = self.runs.total - len(self.runs)
        return islice(self.runs, max(0, count - KEPT - begin), max(0, count - begin))

    def _model(self, group: _Group) -> Performance | None:
        """The newest; None: too little is known."""
        if group not in self._models:
            jobs = self._jobs.get(group, [])
            self._models[group] = jobs, _fitted(group, jobs)
        return self._models[group][1]


def refined(times: Floats, measured: Mapping[JobShape, float]) -> Floats:
    """A measured time holds where it was measured. Everywhere else times move by the same factor,
    their geometric mean.
    """
    if not measured:
        return times
    ratio = [took_s / times[kind, gpus - 1] for (kind, gpus), took_s in sorted(measured.items())]
    found: Floats = times * float(np.exp(np.mean(np.log(ratio))))
    for (kind, gpus), took_s in measured.items():
        found[kind, gpus - 1] = took_s
    return found


def _grouped(runs: Iterable[MachineRun]) -> dict[_Group, _Jobs]:
    by_job: dict[tuple[str, str, bool], list[MachineRun]] = {}
    for run in runs:
        by_job.setdefault((run.family, run.job, run.iterations > 0.0), []).append(run)
    found: dict[_Group, _Jobs] = {}
    for (family, _, counts), of_job in by_job.items():
        groups = [_Group(family, counts), _Group(None, counts)]
        if of_job[0].model_bytes > 0.0:
            groups.append(_Group(None, counts, sized=True))
        for group in groups:
            found.setdefault(group, []).append(tuple(of_job))
    return found


def _level(of_job: Sequence[MachineRun]) -> float:
    """Its run time on one GPU of speed 1, if GPUs help as usual."""
    logs = [log(run.time_s / _usual(run.gpus, run.speed)) for run in of_job]
    return exp(fsum(logs) / len(logs))


def _fitted(group: _Group, jobs: _Jobs) -> Performance | None:
    """A job without iterations that was seen on one shape says nothing of others."""
    telling = jobs if group.counts else [of_job for of_job in jobs if len(of_job) > 1]
    if len(telling) < FEWEST:
        return None
    past = []
    for of_job in telling:
        scale = 1.0 if group.counts else _level(of_job)
        past += [PastRun(_known(group, run), run.time_s / scale, run.job) for run in of_job]
    return fit(past, np.random.default_rng(SEED))


def _known(group: _Group, run: MachineRun) -> dict[str, float]:
    told = run.iterations if group.counts else 0.0
    return _numbers(run.gpus, run.speed, told, run.model_bytes if group.sized else 0.0)


def _time(model: tuple[_Group, Performance] | None, kin: Kin, gpus: int, speed: float) -> float:
    if model is None:
        return _usual(gpus, speed)
    group, found = model
    iterations, model_bytes = float(kin.iterations or 0), kin.model_bytes or 0.0
    sized = model_bytes if group.sized else 0.0
    return found.time_s(_numbers(gpus, speed, iterations, sized))


def _usual(gpus: int, speed: float) -> float:
    return float(gpus**-_SCALING / speed)


def _numbers(gpus: int, speed: float, iterations: float, model_bytes: float) -> dict[str, float]:
    numbers = {"gpus": float(gpus), "speed": speed, "power": gpus * speed}
    told = {"iterations": iterations, "model_bytes": model_bytes}
    return numbers | {name: number for name, number in told.items() if number > 0.0}
