"""Run times on each kind and number of GPUs, learned from earlier jobs.

Each family of jobs has a model (`performance`). For jobs with a known number of iterations it
predicts the run time, from iterations, GPUs, GPU speed and speedup. For other jobs it predicts only
how the run time falls with the GPUs, from jobs that were seen on several shapes. Their level is the
family's median. Users give long jobs more GPUs. A model that mixed both kinds would learn that more
GPUs take longer.

Families with too few known jobs share one model, which knows the size of the network if the
profiler has measured it. Before there is a model, a job is taken to need an hour on one GPU, or the
median. GPUs then speed it up as they do medium networks (g to the power of 0.85). A job's own
measurements are better than those of others (`refined`).

All of this follows from the kept facts (`model/jobs/machine_runs.py`) and their count. Levels use
all of these facts. Models use the facts up to a count of the schedule `fitted_to`, and deal them to
folds by one seed. So the instant of a question does not change its answer.
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

SEED = 0  # of the draw that deals runs to folds
_HOUR_S, _SCALING = 3600.0, 0.85


class JobFeatures(NamedTuple):
    """The facts about a job before it starts. None: its iterations or the size of its network are
    unknown.
    """

    family: str
    iterations: int | None = None
    model_bytes: float | None = None


class JobShape(NamedTuple):
    """A number of GPUs of one kind; `kind` is its place in the catalogue."""

    kind: int
    gpus: int


class MeasuredRun(NamedTuple):
    """A measured run: the time in seconds of the whole job on `gpus` GPUs of this speed."""

    gpus: int
    speed: float
    time_s: float


class _Group(NamedTuple):
    """The jobs that share a model.

    `family`: None for all families. `counts`: with known iterations or without. `sized`: only
    networks of known sizes.
    """

    family: str | None
    counts: bool
    sized: bool = False


_Jobs = list[tuple[MachineRun, ...]]  # the facts of each job, in their order


class LearnedTimes:
    """Run times by kind and GPUs. `speeds`: the speed of one GPU of each kind; `most`: the GPUs of
    the largest node; `runs`: the facts.

    Models are fitted on demand, so that many jobs that end together cost one fit.
    """

    def __init__(
        self, speeds: tuple[float, ...], most: int, runs: MachineRuns | None = None
    ) -> None:
        self.speeds = speeds
        self.most = most
        self.runs = no_runs() if runs is None else runs
        self._count = self._fitted_to = 0
        self._levels: dict[_Group, list[float]] = {}
        self._jobs: dict[_Group, _Jobs] = {}  # from which models are fitted
        self._models: dict[_Group, tuple[_Jobs, Performance | None]] = {}
        self.look(self.runs.total)

    def add(self, features: JobFeatures, found: Iterable[MeasuredRun], job: str) -> None:
        """Learn the measured runs of an ended job; they count at once."""
        iterations, model_bytes = float(features.iterations or 0), features.model_bytes or 0.0
        for one in found:
            self.runs.append(MachineRun(0.0, *one, iterations, model_bytes, features.family, job))
        self.look(self.runs.total)

    def look(self, count: int) -> bool:
        """Learn from the first `count` of all facts. False: that changes nothing."""
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

    def times(self, features: JobFeatures) -> Floats:
        """[kind, GPUs - 1]: the predicted run time in seconds."""
        counts, sized = bool(features.iterations), bool(features.model_bytes)
        groups = [
            _Group(features.family, counts),
            _Group(None, counts, sized),
            _Group(None, counts),
        ]
        models = ((group, found) for group in groups if (found := self._model(group)))
        model = next(models, None)
        known = (self._levels.get(group) for group in groups)
        level = next((median(levels) for levels in known if levels), _HOUR_S)
        scale = 1.0 if counts and model is not None else level
        return np.array(
            [
                [scale * _time(model, features, g, v) for g in range(1, self.most + 1)]
                for v in self.speeds
            ]
        )

    def _newest(self, count: int) -> Iterator[MachineRun]:
        """The latest KEPT of the first `count` facts ever."""
        begin = self.runs.total - len(self.runs)
        return islice(self.runs, max(0, count - KEPT - begin), max(0, count - begin))

    def _model(self, group: _Group) -> Performance | None:
        """The newest model of a group; None: too little is known."""
        if group not in self._models:
            jobs = self._jobs.get(group, [])
            self._models[group] = jobs, _fitted(group, jobs)
        return self._models[group][1]


def refined(times: Floats, measured: Mapping[JobShape, float]) -> Floats:
    """The times of a job, corrected by its own measurements.

    Measured shapes get the measured time. All others move by one factor, the geometric mean of
    measured over predicted.
    """
    if not measured:
        return times
    ratio = [took_s / times[kind, gpus - 1] for (kind, gpus), took_s in sorted(measured.items())]
    found: Floats = times * float(np.exp(np.mean(np.log(ratio))))
    for (kind, gpus), took_s in measured.items():
        found[kind, gpus - 1] = took_s
    return found


def _grouped(runs: Iterable[MachineRun]) -> dict[_Group, _Jobs]:
    """The facts of each job, by the groups to which the job belongs."""
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
    """The run time of a job on one GPU of speed 1, if GPUs speed it up as usual."""
    logs = [log(run.time_s / _usual(run.gpus, run.speed)) for run in of_job]
    return exp(fsum(logs) / len(logs))


def _fitted(group: _Group, jobs: _Jobs) -> Performance | None:
    """The model of a group; None: too few jobs.

    A job without iterations that was seen on one shape says nothing about other shapes, and is left
    out.
    """
    telling = jobs if group.counts else [of_job for of_job in jobs if len(of_job) > 1]
    if len(telling) < FEWEST:
        return None
    past = []
    for of_job in telling:
        scale = 1.0 if group.counts else _level(of_job)
        past += [PastRun(_known(group, run), run.time_s / scale, run.job) for run in of_job]
    return fit(past, np.random.default_rng(SEED))


def _known(group: _Group, run: MachineRun) -> dict[str, float]:
    """The numbers of a past run that the group's model uses."""
    told = run.iterations if group.counts else 0.0
    return _numbers(run.gpus, run.speed, told, run.model_bytes if group.sized else 0.0)


def _time(
    model: tuple[_Group, Performance] | None, features: JobFeatures, gpus: int, speed: float
) -> float:
    """Predicted seconds; without a model, relative to one GPU of speed 1."""
    if model is None:
        return _usual(gpus, speed)
    group, found = model
    iterations, model_bytes = float(features.iterations or 0), features.model_bytes or 0.0
    sized = model_bytes if group.sized else 0.0
    return found.time_s(_numbers(gpus, speed, iterations, sized))


def _usual(gpus: int, speed: float) -> float:
    """The run time relative to one GPU of speed 1, if GPUs speed it up as usual."""
    return float(gpus**-_SCALING / speed)


def _numbers(gpus: int, speed: float, iterations: float, model_bytes: float) -> dict[str, float]:
    """The inputs of a model by name; unknown ones (0) are left out."""
    numbers = {"gpus": float(gpus), "speed": speed, "power": gpus * speed}
    told = {"iterations": iterations, "model_bytes": model_bytes}
    return numbers | {name: number for name, number in told.items() if number > 0.0}
