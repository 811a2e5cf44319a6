"""The remaining times of jobs on rented machines and on own nodes, by estimates and earlier jobs.

t(job, type, g) is learned by `policy.priced.learning`. It scales the user's estimate of a job to
other types and numbers of GPUs. Without an estimate it is the run time itself. A job's result is
kept while its value is the same object.

Declared speeds of GPU types (`TypeSpeeds`) count. An estimate holds for GPUs of its reference
speed, and a job's work takes longer on slower own GPUs. The line of own nodes knows no types, so a
job counts there with the mean speed of the own GPUs that it may get.

A guess (`Basis.guess`) counts as any other estimate. The limits of renting bound the cost of a
wrong one, and each decision starts anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from math import inf, nan
from types import MappingProxyType
from typing import TypeVar, cast

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.machine_runs import (
    MachineRuns,
    family_of,
    model_bytes_of,
    settled,
)
from dlq_master.model.late import np
from dlq_master.model.nodes.type_speeds import ALL_ALIKE, REFERENCE, TypeSpeeds
from dlq_master.policy.priced.catalogue import Bools, Floats, NodeType
from dlq_master.policy.priced.learning import JobFeatures, LearnedTimes
from dlq_master.policy.rent.line import LineEntry

_NONE: Mapping[str, int] = MappingProxyType({})
_LEAST_S = 1.0  # the least remaining time of a job, whatever its estimate
_Value = TypeVar("_Value")
_Kept = dict[JobId, tuple[Job, _Value]]


class MachineRunTimes:
    """The remaining times of jobs. `speeds`: the speed of one GPU of each of `types`; `runs`: facts
    of completed jobs; `declared`: the declared speeds of GPU types.
    """

    def __init__(
        self,
        types: Sequence[NodeType],
        speeds: Sequence[float],
        runs: MachineRuns,
        declared: TypeSpeeds = ALL_ALIKE,
    ) -> None:
        self._types = tuple(types)
        self._declared = declared
        references = sorted({REFERENCE, *declared.declared.values()})
        self._at = {speed: n for n, speed in enumerate(references, start=len(speeds))}
        most = max(one.gpus for one in types)
        self._learned = LearnedTimes((*speeds, *references), most, runs)
        self._own = _NONE
        self._tables: dict[JobFeatures, Floats] = {}
        self._lefts: _Kept[Floats] = {}
        self._lines: _Kept[LineEntry] = {}

    def look(self, now_s: float) -> None:
        """Learn from the facts that are settled at `now_s`."""
        if self._learned.look(settled(self._learned.runs, now_s)):
            self._tables.clear()
            self._lefts, self._lines = {}, {}

    def left_s(self, jobs: Sequence[Job]) -> list[Floats]:
        """Each job's remaining time in seconds, by type and GPUs - 1; inf: it may not run so."""
        self._lefts = _kept(self._lefts, jobs, self._left_s)
        return [left for _, left in self._lefts.values()]

    def line_entries(self, jobs: Sequence[Job], own: Mapping[str, int] = _NONE) -> list[LineEntry]:
        """The jobs as entries of the line of own nodes. `own`: the cluster's own GPUs, by type."""
        if self._declared.declared and own != self._own:
            self._own, self._lines = dict(own), {}
        self._lines = _kept(self._lines, jobs, lambda new: [self._line_entry(job) for job in new])
        return [one for _, one in self._lines.values()]

    def _left_s(self, jobs: list[Job]) -> Iterable[Floats]:
        """As `left_s`, for jobs without a kept result."""
        if not jobs:
            return []
        whole = np.array([self._table(job) for job in jobs])
        every = np.arange(len(jobs))
        asked = [min(job.request.gpus, whole.shape[2]) - 1 for job in jobs]
        reference = [self._at[self._declared.reference_of(job.request)] for job in jobs]
        asked_s = whole[every, reference, asked]
        told = [job.duration_estimate_s for job in jobs]
        told_s = np.array([nan if one is None else one for one in told])
        scale = np.where(np.isnan(told_s), 1.0, told_s / asked_s)
        whole = whole * scale[:, None, None]
        worked_s = np.array([job.worked_s for job in jobs])
        limits_s = np.array([_limit_left_s(job) for job in jobs])
        done = np.minimum(1.0, worked_s / whole[every, reference, asked])
        left = np.minimum(whole * (1.0 - done)[:, None, None], limits_s[:, None, None])
        left = np.maximum(left, _LEAST_S)
        may = cache(self._may_run)
        requests = [job.request for job in jobs]
        allowed = np.array([may(one.gpu_types, one.sizes or (one.gpus,)) for one in requests])
        return np.where(allowed, left[:, : len(self._types)], inf)

    def _may_run(self, gpu_types: tuple[str, ...] | None, sizes: tuple[int, ...]) -> Bools:
        """[type, g - 1]: whether a request for these types and sizes may run on g GPUs of it."""
        count = np.arange(1, self._learned.most + 1)
        typed = np.array([gpu_types is None or one.kind in gpu_types for one in self._types])
        gpus = np.array([one.gpus for one in self._types])
        may: Bools = typed[:, None] & np.isin(count, sizes) & (count <= gpus[:, None])
        return may

    def _line_entry(self, job: Job) -> LineEntry:
        """One job as an entry of the line, with its larger sizes."""
        request, most = job.request, self._learned.most
        larger = [gpus for gpus in request.sizes if job.gpus_now < gpus <= most]
        pace = self._declared.mean_pace(request, self._own)
        more = tuple((gpus, self.on_own_s(job, gpus, pace)) for gpus in larger)
        return LineEntry(
            int(job.job_id), job.gpus_now, self.on_own_s(job, request.gpus, pace), more
        )

    def on_own_s(self, job: Job, gpus: int, pace: float) -> float:
        """The remaining seconds of a job on `gpus` own GPUs.

        `pace`: seconds of its run time that one second on them does. More GPUs than the largest
        machine has count as those of that machine.
        """
        whole_s, asked = job.duration_estimate_s, job.request.gpus
        if whole_s is not None and gpus == asked:
            return _within(job, (whole_s - job.worked_s) / pace)
        own = self._table(job)[self._at[self._declared.reference_of(job.request)]].tolist()
        asked_s, these_s = (own[min(count, len(own)) - 1] for count in (asked, gpus))
        left_s = (asked_s if whole_s is None else whole_s) - job.worked_s
        return _within(job, left_s * these_s / asked_s / pace)

    def _table(self, job: Job) -> Floats:
        """Seconds of the whole job by type, then by reference speed, and by GPUs - 1; learned, and
        kept until more is known.
        """
        features = _features_of(job)
        found = self._tables.get(features)
        if found is None:
            found = self._tables[features] = self._learned.times(features)
        return found


def _kept(
    before: _Kept[_Value], jobs: Sequence[Job], work_out: Callable[[list[Job]], Iterable[_Value]]
) -> _Kept[_Value]:
    """The results of the jobs in their order: kept ones for unchanged values, new ones for the
    others.
    """
    found = {job.job_id: before.get(job.job_id) for job in jobs}
    new = [job for job in jobs if (one := found[job.job_id]) is None or one[0] is not job]
    for job, value in zip(new, work_out(new), strict=True):
        found[job.job_id] = job, value
    return cast("_Kept[_Value]", found)


def _within(job: Job, left_s: float) -> float:
    """A remaining time, cut off by the job's time limit."""
    return max(_LEAST_S, min(left_s, _limit_left_s(job)))


def _limit_left_s(job: Job) -> float:
    """The seconds until the job's time limit; inf: it has none."""
    left_s = job.limit_at_start_s
    return inf if left_s is None else left_s


def _features_of(job: Job) -> JobFeatures:
    return JobFeatures(family_of(job), job.step_count, model_bytes_of(job))
