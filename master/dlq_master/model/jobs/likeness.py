"""Jobs that are alike, and times that are.

Run times of jobs that are alike count for each other as they are. Times that are alike have a
median that says something of the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from dlq_master.model.jobs.job import Job
from dlq_master.model.values import median

FEWEST_RUNS = 5  # completed runs before they count
SPREAD = 1.2  # at most, of the 90th percentile over the median, and of several ratios


class Likeness(NamedTuple):
    """The properties in which a job must equal those before it, for their run times to count for
    its own as they are. The GPU type, on which they ran, comes with the run times. `program`: of a
    family with a name (`Job.program`).
    """

    family: str
    gpus: int
    nodes: int | None
    steps: int | None
    halves_batch: bool
    program: str = ""


def likeness(job: Job) -> Likeness:
    """Of a job that has a family."""
    request = job.request
    size = (request.gpus, request.nodes)
    return Likeness(job.family, *size, job.step_count, request.halves_batch, job.program)


def agreed(ratios: Sequence[float]) -> float | None:
    """The median of ratios that are alike."""
    alike = bool(ratios) and max(ratios) <= SPREAD * min(ratios)
    return median(ratios) if alike else None


def typical(times_s: Sequence[float], fewest: int) -> float | None:
    """The median of so many times that are alike."""
    if len(times_s) < fewest:
        return None
    ordered = sorted(times_s)
    median_s = percentile(ordered, 0.5)
    return median_s if percentile(ordered, 0.9) <= SPREAD * median_s else None


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest that at least this share stays within."""
    return ordered[ceil(share * len(ordered) - 1e-9) - 1]
