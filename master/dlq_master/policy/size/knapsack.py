"""Aryl's second phase (section 5.2, Algorithm 2): the flexible demand as a multiple-choice
knapsack.

An item of a job is one of its sizes beyond the base. Its weight is the GPUs beyond the base. Its
worth is the time that it saves against the base alone, counted in the remaining work of the job.
Algorithm 2 prints (w + w_min) D as the weight, which charges the base again although phase one has
paid for it. The text means w D (section 5.2, "additional GPUs").

Marginal values fall with the size if throughput is linear. Then steps by value for each GPU, the
greatest first, are optimal where all workers have as many GPUs. Otherwise they are optimal up to
the last steps. Where values do not fall, a step goes to the size that gains most for each GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from dlq_master.model.ids import JobId
from dlq_master.policy.size.sizing import Candidate


class Packed(NamedTuple):
    """Sizes, what they are worth in seconds, and what no sizes within the GPUs are worth more
    than.
    """

    sizes: dict[JobId, int]
    value: float
    bound: float


def grow(candidates: Sequence[Candidate], left: int, short: bool) -> dict[JobId, int]:
    """Steps by value for each GPU. Whose run time nobody knows gets what is left then, in line."""
    known = [one for one in candidates if one.left_s < inf]
    sizes = packed(known, left).sizes
    return with_unknown(candidates, sizes, left)


def packed(candidates: Sequence[Candidate], left: int) -> Packed:
    """O((n + steps) log n); `bound` is the optimum of the relaxation."""
    sizes = [one.job.request.sizes or (one.base,) for one in candidates]
    takes_s = [[one.takes_s(size) for size in sizes[at]] for at, one in enumerate(candidates)]
    straight = [not one.job.speeds for one in candidates]
    places = [0] * len(candidates)  # of the sizes that they have by now, the bases
    numbers = range(len(candidates))
    steps = [it for at in numbers if (it := _step(at, 0, sizes[at], takes_s[at], straight[at]))]
    heapify(steps)
    value, bound = 0.0, None
    while steps and left:
        worth, at, place = heappop(steps)
        gpus = sizes[at][place] - sizes[at][places[at]]
        if gpus > left:
            if bound is None:
                bound = value - worth * left
            continue
        value -= worth * gpus
        places[at] = place
        left -= gpus
        if following := _step(at, place, sizes[at], takes_s[at], straight[at]):
            heappush(steps, following)
    named = {one.job.job_id: sizes[at][places[at]] for at, one in enumerate(candidates)}
    return Packed(named, value, value if bound is None else bound)


def with_unknown(
    candidates: Sequence[Candidate], sizes: dict[JobId, int], left: int
) -> dict[JobId, int]:
    """The sizes, and what they leave for those whose run time nobody knows, one after the other."""
    for one in candidates:
        left -= sizes.get(one.job.job_id, one.base) - one.base
    for one in candidates:
        if one.left_s == inf:
            size = one.most(left)
            left -= size - one.base
            sizes[one.job.job_id] = size
    return sizes


def worth_s(candidate: Candidate, size: int) -> float:
    """The value of an item: seconds saved over its base."""
    return candidate.takes_s(candidate.base) - candidate.takes_s(size)


def _step(
    at: int, place: int, sizes: Sequence[int], takes_s: Sequence[float], straight: bool
) -> tuple[float, int, int] | None:
    """The best next step of job `at` from the size at that place: seconds for each GPU, the job's
    number, the place of the size. Seconds are negative, because the heap's least is the greatest.
    `straight`: it is to the next size.
    """
    if place + 1 >= len(sizes):
        return None
    size, now_s, best = sizes[place], takes_s[place], place + 1
    gain = (now_s - takes_s[best]) / (sizes[best] - size)
    for other in () if straight else range(place + 2, len(sizes)):
        steeper = (now_s - takes_s[other]) / (sizes[other] - size)
        if steeper > gain:
            gain, best = steeper, other
    return (-gain, at, best) if gain > 0.0 else None
