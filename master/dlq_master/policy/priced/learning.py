"""Run times that nobody tells: of each kind and number of GPUs, from what earlier jobs took there.

One model for each family (`performance`). For jobs that say how many iterations they make it
forecasts the run time, from iterations, GPUs, the speed of one and their speedup together. For
others it forecasts only how the run time falls with the GPUs, from jobs that were seen on several
shapes. Their level is the family's usual one. Long jobs are given more GPUs, and a model without
that knowledge would learn that more GPUs take longer.

Families with too few known jobs share one model. Before there is one, jobs are taken to need an
hour on one GPU, or the usual time. GPUs then speed them up as they do medium networks (g to the
power of 0.85). A job's own measurements are better than those of others: `refined` by its own
speed, once that was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import exp, fsum, log
from statistics import median
from typing import NamedTuple

from dlq_master.model.late import np
from dlq_master.policy.priced.catalogue import Floats
from dlq_master.policy.priced.performance import FEWEST, PastRun, Performance, fit

GROWTH = 1.5  # a model is fitted anew when so many times as many runs are known
_HOUR_S, _SCALING = 3600.0, 0.85


class Kin(NamedTuple):
    """The knowledge of a job before it starts: its family, and its iterations if it names them."""

    family: str
    iterations: int | None = None


class JobShape(NamedTuple):
    """So many GPUs of one kind, by its place in the catalogue."""

    kind: int
    gpus: int


class Took(NamedTuple):
    """All of a job takes so long on so many GPUs, each so fast."""

    gpus: int
    speed: float
    time_s: float


@dataclass
class _Group:
    """The knowledge of one family, or of all (of those with iterations, or of those without)."""

    runs: list[PastRun] = field(default_factory=list)
    jobs: set[str] = field(default_factory=set)  # that `runs` are of
    levels: list[float] = field(default_factory=list)  # of jobs without iterations
    seen: int = 0  # runs that the model was fitted to
    model: Performance | None = None

    def fitted(self, draw: np.random.Generator) -> Performance | None:
        """The newest; None: too little is known."""
        if len(self.jobs) >= FEWEST and len(self.runs) >= GROWTH * self.seen:
            self.model, self.seen = fit(self.runs, draw), len(self.runs)
        return self.model


@dataclass
class LearnedTimes:
    """`speeds`: of one GPU of each kind; `most`: GPUs of the largest node. `draw` deals runs to
    folds.

    Models are fitted when they are asked for, so that a crowd of jobs that end together costs one
    fit."""

    speeds: tuple[float, ...]
    most: int
    draw: np.random.Generator
    _groups: dict[tuple[str | None, bool], _Group] = field(default_factory=dict)

    def add(self, kin: Kin, found: Iterable[Took], job: str) -> None:
        """A job that has ended, with what was measured of it."""
        took = list(found)
        if not took:
            return
        level = exp(fsum(log(one.time_s / _usual(one.gpus, one.speed)) for one in took) / len(took))
        for family in (kin.family, None):
            group = self._groups.setdefault((family, kin.iterations is not None), _Group())
            group.levels.append(level)
            if kin.iterations is None and len(took) == 1:
                continue  # it says nothing of other shapes
            scale = level if kin.iterations is None else 1.0
            group.jobs.add(job)
            group.runs += [
                PastRun(_numbers(kin, one.gpus, one.speed), one.time_s / scale, job) for one in took
            ]

    def times(self, kin: Kin) -> Floats:
        """Seconds, by kind and GPUs - 1."""
        counts = kin.iterations is not None
        groups = [self._groups.get((family, counts)) or _Group() for family in (kin.family, None)]
        model = next((found for group in groups if (found := group.fitted(self.draw))), None)
        level = next((median(group.levels) for group in groups if group.levels), _HOUR_S)
        scale = 1.0 if counts and model is not None else level
        return np.array(
            [
                [scale * _time(model, kin, g, v) for g in range(1, self.most + 1)]
                for v in self.speeds
            ]
        )


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


def _time(model: Performance | None, kin: Kin, gpus: int, speed: float) -> float:
    return _usual(gpus, speed) if model is None else model.time_s(_numbers(kin, gpus, speed))


def _usual(gpus: int, speed: float) -> float:
    return float(gpus**-_SCALING / speed)


def _numbers(kin: Kin, gpus: int, speed: float) -> dict[str, float]:
    numbers = {"gpus": float(gpus), "speed": speed, "power": gpus * speed}
    if kin.iterations is not None:
        numbers["iterations"] = float(kin.iterations)
    return numbers
