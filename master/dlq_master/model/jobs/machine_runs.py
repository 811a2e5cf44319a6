"""Run times of completed jobs, from which the models for rented machines are fitted.

They lie in rows (`model/cluster/learned.py`). At an instant the facts from before the last look
count (`settled`), and models see a fixed number of them (`fitted_to`). So a restarted master
has the same models.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Final, NamedTuple

from dlq_master.model.estimates.lessons import Newest
from dlq_master.model.jobs.job import SEVERAL, Job

KEPT: Final = 2_000  # facts from which levels and models are learned
LOOK_S: Final = 30.0  # facts count from the next multiple of it on
FEWEST: Final = 5  # facts of the first models
GROWTH: Final = 1.5  # models are fitted anew when so many times as many facts have come
MOST_NEW: Final = 64  # or when so many more have
_MOST_UNSETTLED: Final = 1_000
RING: Final = KEPT + MOST_NEW + _MOST_UNSETTLED


class MachineRun(NamedTuple):
    """All of a job takes so long on so many GPUs, each so fast. `at_s`: when it was learned.
    `iterations` and `model_bytes`: 0 where nobody knows them.
    """

    at_s: float
    gpus: int
    speed: float
    time_s: float
    iterations: float
    model_bytes: float
    family: str
    job: str


MachineRuns = Newest[MachineRun]


def no_runs() -> MachineRuns:
    """Nothing has been learned."""
    return Newest(maxlen=RING)


def runs_of(job: Job, now_s: float, speed: float = 1.0, counted: float = 1.0) -> list[MachineRun]:
    """The facts of a completed job, on GPUs of this speed. `counted`: by which its service counts.

    A job with steps on several sizes, and a known number of them, is a fact for each size. Others
    must have run through on one number of GPUs: mixtures say nothing of either.
    """
    took: Sequence[tuple[int, float]] = ()
    if job.step_count and len(job.paces) > 1 and job.gpu_type_ran != SEVERAL:
        took = [(pace.gpus, pace.step_s * job.step_count) for pace in job.paces]
    elif not (job.preemptions or job.resizes) and job.total_executed_s > 0.0:
        took = [(round(job.total_gpu_s / job.total_executed_s / counted), job.total_executed_s)]
    return [
        MachineRun(
            now_s,
            gpus,
            speed,
            time_s,
            float(job.step_count or 0),
            model_bytes_of(job) or 0.0,
            family_of(job),
            str(job.job_id),
        )
        for gpus, time_s in took
        if gpus >= 1 and time_s > 0.0
    ]


def family_of(job: Job) -> str:
    """Jobs without a family are like the others of their user."""
    return job.family or f"{job.user}/"


def model_bytes_of(job: Job) -> float | None:
    """The size of its model, if the profiler has measured it."""
    return None if job.profile is None else job.profile.model_bytes


def settled(runs: MachineRuns, now_s: float) -> int:
    """How many of all facts count: those before the last multiple of `LOOK_S`.

    Facts of after this interval are of a clock that was set back since, and count.
    """
    begin_s = now_s // LOOK_S * LOOK_S
    new = 0
    for run in reversed(runs):
        if new == _MOST_UNSETTLED or not begin_s <= run.at_s < begin_s + LOOK_S:
            break
        new += 1
    return runs.total - new


def fitted_to(count: int) -> int:
    """The number of facts that models see once `count` have come; 0: there is none yet."""
    if count < FEWEST:
        return 0
    found = FEWEST
    while (more := ceil(GROWTH * found)) - found < MOST_NEW and more <= count:
        found = more
    if more - found >= MOST_NEW:
        found += (count - found) // MOST_NEW * MOST_NEW
    return found
