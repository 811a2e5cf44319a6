"""The run times that a policy that rents is given: the truth, or learned estimates."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

import numpy as np
from numpy.typing import NDArray

from dlq_master.policy.priced.learning import JobShape, LearnedTimes, MeasuredRun, refined
from dlq_simulator.priced.instance import RentingInstance, features_of
from dlq_simulator.priced.way import Way
from dlq_simulator.workload import Trace

_HAIR_S = 1e-3  # sums of seconds differ by less

Table = NDArray[np.float64]


class Exact:
    """The truth: seconds of the whole run by kind and GPUs - 1, inf where a job may not run."""

    def __init__(self, instance: RentingInstance) -> None:
        self._jobs = instance.jobs

    def told(self, number: int, way: Way) -> Table:
        """The present estimate of a job, by its number."""
        return self._jobs[number].time_s

    def ended(self, number: int, way: Way) -> None:
        """The job is done, and others learn from it."""

    def news_s(self, way: Way, now_s: float) -> float:
        """When more will be known of a job that runs, if it is left alone; inf: never."""
        return inf


class Fitted(Exact):
    """Estimates of models that were fitted to ended jobs. A job's own speed refines them once it
    has made progress on a shape for `measure_s` (unless not `refine`). The share that is done is
    known, as jobs tell it.

    `errors`: for each job, the error of the estimate at its submit: the mean over its shapes of the
    absolute error over the truth.
    """

    def __init__(
        self,
        instance: RentingInstance,
        learned: LearnedTimes,
        measure_s: float,
        *,
        refine: bool = True,
    ) -> None:
        super().__init__(instance)
        self._learned = learned
        self._measure_s = measure_s
        self._refine = refine
        self.errors: dict[int, float] = {}

    def told(self, number: int, way: Way) -> Table:
        job = self._jobs[number]
        allowed = np.isfinite(job.time_s)
        table = np.where(allowed, self._learned.times(job.features), inf)
        if number not in self.errors:
            off = np.abs(table[allowed] - job.time_s[allowed]) / job.time_s[allowed]
            self.errors[number] = float(off.mean())
        return refined(table, self._measured(number, way)) if self._refine else table

    def ended(self, number: int, way: Way) -> None:
        speeds, job = self._learned.speeds, self._jobs[number]
        took = [
            MeasuredRun(shape.gpus, speeds[shape.kind], time_s)
            for shape, time_s in self._measured(number, way).items()
        ]
        self._learned.add(job.features, took, job.job_id)

    def news_s(self, way: Way, now_s: float) -> float:
        if not self._refine:
            return inf
        left_s = self._measure_s - way.progress_s.get(way.shape, 0.0)
        return max(now_s, way.ready_s) + left_s if left_s > _HAIR_S else inf

    def _measured(self, number: int, way: Way) -> Mapping[JobShape, float]:
        time_s = self._jobs[number].time_s
        return {
            shape: float(time_s[shape.kind, shape.gpus - 1])
            for shape, progress_s in sorted(way.progress_s.items())
            if progress_s >= self._measure_s - _HAIR_S
        }


def learn(learned: LearnedTimes, history: Trace, speeds: Mapping[str, float]) -> None:
    """All jobs of an earlier trace, in every configuration with a known run time. `speeds` by GPU
    type; rows of other types teach nothing, rows of none are of speed 1.
    """
    for row in history.jobs:
        told = row.times_s or ((row.gpu_type, row.num_gpus, row.duration_s),)
        took = [
            MeasuredRun(gpus, 1.0 if kind is None else speeds[kind], float(time_s))
            for kind, gpus, time_s in told
            if time_s > 0 and (kind is None or kind in speeds)
        ]
        learned.add(features_of(row), took, f"history/{row.job_id}")
