"""How long jobs take on each offer's machines, by their users and by earlier jobs.

t(job, type, g) is `policy.priced.learning`. For a job with an estimate it says how that changes
with the type and the number of GPUs. For one without it says how long the job takes. The result for
a job is kept while the job is the same value.

Declared speeds of types (`TypeSpeeds`) count. An estimate holds on GPUs of the speed of its
reference, and the work of a job takes longer on slower own GPUs. The line before the own nodes
looks at no types. So a job counts there with the mean speed of the own GPUs that it may get.

A guess (`Basis.guess`) counts as any other estimate. The limits of renting bound the cost of a
wrong one, and each look decides anew.
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
from dlq_master.policy.priced.learning import Kin, LearnedTimes
from dlq_master.policy.rent.line import InLine

_NONE: Mapping[str, int] = MappingProxyType({})
_LEAST_S = 1.0  # that is left of a job, whatever was said of it
_Value = TypeVar("_Value")
_Kept = dict[JobId, tuple[Job, _Value]]


class MachineRunTimes:
    """`speeds`: of one GPU of each type; `runs`: the facts of completed jobs;
    `declared`: of GPU types.
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
        self._tables: dict[Kin, Floats] = {}
        self._lefts: _Kept[Floats] = {}
        self._lines: _Kept[InLine] = {}

    def look(self, now_s: float) -> None:
        """From now on the facts count that are settled at this instant."""
        if self._learned.look(settled(self._learned.runs, now_s)):
            self._tables.clear()
            self._lefts, self._lines = {}, {}

    def left_s(self, jobs: Sequence[Job]) -> list[Floats]:
        """For each job by type and GPUs - 1: its remaining time there; inf where it may not run."""
        self._lefts = _kept(self._lefts, jobs, self._left_s)
        return [left for _, left in self._lefts.values()]

    def in_line(self, jobs: Sequence[Job], own: Mapping[str, int] = _NONE) -> list[InLine]:
        """Each of them as it stands in line for the cluster's own GPUs, so many of each type."""
        if self._declared.declared and own != self._own:
            self._own, self._lines = dict(own), {}
        self._lines = _kept(self._lines, jobs, lambda new: [self._in_line(job) for job in new])
        return [one for _, one in self._lines.values()]

    def _left_s(self, jobs: list[Job]) -> Iterable[Floats]:
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
        """By type and GPUs - 1: whether who asks for such GPUs, in one of these numbers, may run
        there.
        """
        count = np.arange(1, self._learned.most + 1)
        typed = np.array([gpu_types is None or one.kind in gpu_types for one in self._types])
        gpus = np.array([one.gpus for one in self._types])
        may: Bools = typed[:, None] & np.isin(count, sizes) & (count <= gpus[:, None])
        return may

    def _in_line(self, job: Job) -> InLine:
        """With what is left of it on what it asks for, and on the larger numbers of GPUs that it
        may have.
        """
        request, most = job.request, self._learned.most
        larger = [gpus for gpus in request.sizes if job.gpus_now < gpus <= most]
        pace = self._declared.mean_pace(request, self._own)
        more = tuple((gpus, self.on_own_s(job, gpus, pace)) for gpus in larger)
        return InLine(int(job.job_id), job.gpus_now, self.on_own_s(job, request.gpus, pace), more)

    def on_own_s(self, job: Job, gpus: int, pace: float) -> float:
        """Its remaining time on so many of the cluster's own GPUs; more than one node has count as
        one node's. `pace`: seconds of its run time that a second on them does.
        """
        whole_s, asked = job.duration_estimate_s, job.request.gpus
        if whole_s is not None and gpus == asked:
            return _within(job, (whole_s - job.worked_s) / pace)
        own = self._table(job)[self._at[self._declared.reference_of(job.request)]].tolist()
        asked_s, these_s = (own[min(count, len(own)) - 1] for count in (asked, gpus))
        left_s = (asked_s if whole_s is None else whole_s) - job.worked_s
        return _within(job, left_s * these_s / asked_s / pace)

    def _table(self, job: Job) -> Floats:
        """Seconds of jobs of its kin by type, then by the speeds of references, and by GPUs - 1;
        the same until more is known.
        """
        kin = _kin(job)
        found = self._tables.get(kin)
        if found is None:
            found = self._tables[kin] = self._learned.times(kin)
        return found


def _kept(
    before: _Kept[_Value], jobs: Sequence[Job], work_out: Callable[[list[Job]], Iterable[_Value]]
) -> _Kept[_Value]:
    """In the order of the jobs: the kept results of those that are the same values as before, and
    new ones of the others.
    """
    found = {job.job_id: before.get(job.job_id) for job in jobs}
    new = [job for job in jobs if (one := found[job.job_id]) is None or one[0] is not job]
    for job, value in zip(new, work_out(new), strict=True):
        found[job.job_id] = job, value
    return cast("_Kept[_Value]", found)


def _within(job: Job, left_s: float) -> float:
    """Its remaining time, cut off by its time limit."""
    return max(_LEAST_S, min(left_s, _limit_left_s(job)))


def _limit_left_s(job: Job) -> float:
    left_s = job.limit_at_start_s
    return inf if left_s is None else left_s


def _kin(job: Job) -> Kin:
    return Kin(family_of(job), job.step_count, model_bytes_of(job))
