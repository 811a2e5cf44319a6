"""Pollux (Qiao et al., OSDI 2021, 4.2): GPUs to whom they speed up most, for all jobs alike.

The fitness of an allocation is the power mean, of power -1, of the speedups of all jobs. A job's
speedup is its goodput over that on its fair share, 1 / J of the GPUs. A job that gets another
number of GPUs loses by it. Its speedup counts max(T - R d, 0) / (T + d) times. T is the job's age,
R the number of its reallocations so far, and d the price of one.

The harmonic mean is largest where the sum of the jobs' 1 / speedup is least, and each term depends
on one job alone. So no genetic search is needed. Of each job only the sizes on the lower hull of
its terms matter, and its steps along the hull gain less and less. The steps of all jobs are taken
in the order of their gain for each GPU. No allocation is better, but for the last GPUs, into which
no next step fits. They go where they gain most. O(n log n) in all sizes of all jobs.

Deviations: As Aryl compares Pollux (7.1), a job keeps its base and stays within its sizes. So
nobody is stopped for others. The fair share is the nearest size that is not larger. A job that
starts is not charged for it: in the released program a new job would count as nothing. The place
stage chooses the places. Bases go out by their width, and then in the order of arrival, as in the
released scheduler. So the most jobs have a speedup above 0. Jobs of one size count in no mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.order.keys import Had
from dlq_master.policy.size.sizing import Candidate, Sizing

REALLOCATION_S = 30.0  # d, in the released program


class _HullStep(NamedTuple):
    """From one size to the next on the hull. The first in the order gains most for each GPU."""

    loss: float  # less than 0: the change of the term for each GPU
    place: int  # of the job
    at: int  # of the step
    gpus: int


def fewest_base(job: Job, _had: Had) -> tuple[float, ...]:
    """The smallest base."""
    return (job.request.weighed(job.request.base),)


def grow(candidates: Sequence[Candidate], left: int, short: bool) -> dict[JobId, int]:
    """The sizes of the greatest fitness."""
    fair = (left + sum(one.base for one in candidates)) / max(1, len(candidates))
    terms = [_terms(one, fair) for one in candidates]
    hulls = [_hull(each) for each in terms]
    sizes = [one.base for one in candidates]
    heap = [step for place, hull in enumerate(hulls) for step in _step(hull, place, 0)]
    heapify(heap)
    while heap and left > 0:
        step = heappop(heap)
        if step.gpus <= left:
            left -= step.gpus
            sizes[step.place] += step.gpus
            for following in _step(hulls[step.place], step.place, step.at + 1):
                heappush(heap, following)
    while (last := _last(terms, sizes, left)) is not None:
        place, size = last
        left -= size - sizes[place]
        sizes[place] = size
    return {one.job.job_id: size for one, size in zip(candidates, sizes, strict=True)}


def _terms(one: Candidate, fair: float) -> list[tuple[int, float]]:
    """1 / speedup on each of its sizes, the smallest first."""
    job, sizes = one.job, one.job.request.sizes or (one.base,)
    own = job.speed_on(max((size for size in sizes if size <= fair), default=one.base))
    kept = 1.0
    if one.held:
        again_s = max(0, job.attempts - 1) * REALLOCATION_S
        kept = max(0.0, one.age_s - again_s) / (one.age_s + REALLOCATION_S)
    found = []
    for size in sizes:
        speed = job.speed_on(size) * (1.0 if size == one.held else kept)
        found.append((size, own / speed if speed > 0.0 else inf))
    return found


def _hull(terms: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """The lower convex hull from the smallest size on, as far as it falls."""
    hull: list[tuple[int, float]] = []
    for size, term in terms:
        if hull and (term >= hull[-1][1] or term == inf):
            continue
        while len(hull) > 1 and _slope(hull[-1], (size, term)) <= _slope(hull[-2], hull[-1]):
            hull.pop()
        hull.append((size, term))
    return hull


def _slope(one: tuple[int, float], other: tuple[int, float]) -> float:
    return (other[1] - one[1]) / (other[0] - one[0])


def _step(hull: Sequence[tuple[int, float]], place: int, at: int) -> Iterator[_HullStep]:
    if at + 1 < len(hull):
        one, other = hull[at], hull[at + 1]
        yield _HullStep(_slope(one, other), place, at, other[0] - one[0])


def _last(
    terms: Sequence[Sequence[tuple[int, float]]], sizes: Sequence[int], left: int
) -> tuple[int, int] | None:
    """The job and its size with the greatest gain on what is left; None: nobody gains."""
    best, found = 0.0, None
    for place, size in enumerate(sizes):
        now = dict(terms[place])[size]
        for larger, term in terms[place]:
            if size < larger <= size + left and term - now < best:
                best, found = term - now, (place, larger)
    return found


POLLUX_SIZING = Sizing("goodput", grow, by_goodput=True)
