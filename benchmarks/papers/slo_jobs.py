"""Synthetic sets of jobs with deadlines, and the seeds they are drawn from.

The seeds were written down before the solver that they judge: nothing was tuned on another choice
of them.

All jobs of a set are there now. Run times are log-uniform from 5 minutes to 3 days, and the first
deadline is uniform in [1.2, 2] run times. Every second job is soft: full reward, then 80, 50 and 20
up to 1.1, 1.2 and 1.5 times the first deadline (Chronus, section 5.1). Widths follow `WIDTHS`,
tilted towards wide jobs until the set reaches its load: p(w) is multiplied by w^theta, with the
least theta that suffices. The load of a set is the greatest demand of any stretch of time from now
on, in parts of the cluster's capacity. It supposes that every job makes its first deadline. More
than 1 cannot be served.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

SELECTOR_SEEDS = tuple(range(7001, 7021))  # 20: 960 GPUs, 400 jobs, at each load
SMALL_SEEDS = tuple(range(7101, 7113))  # 12: 64 GPUs, 50 jobs
SCALE_SEEDS = tuple(range(7201, 7206))  # 5: 4,096 x 800 and 10,000 x 2,000
PRINTED_SEEDS = (7301,)  # the time-indexed program takes its whole time limit
REPLAY_SEEDS = (7401, 7402)  # arrivals of the admission replay
LOADS = (0.8, 1.0, 1.3)

TERM_S = 1200
WIDTHS = {1: 0.60, 2: 0.10, 4: 0.10, 8: 0.15, 16: 0.04, 32: 0.01}
WIDE = {**WIDTHS, 64: 0.004, 128: 0.001}  # of clusters in which 32 GPUs are little
LARGE_GPUS = 2000
SHORTEST_S, LONGEST_S = 300.0, 3 * 86_400.0
SOFT = ((1.0, 100.0), (1.1, 80.0), (1.2, 50.0), (1.5, 20.0))
_TILTS = 40  # halvings of the range of theta


class Drawn(NamedTuple):
    """One job of a set; deadlines count from now, in the order of falling rewards."""

    gpus: int
    runtime_s: float
    steps: tuple[tuple[float, float], ...]


def draw_one(draw: random.Random, gpus: int = 1) -> Drawn:
    """One job of that width."""
    runtime_s = math.exp(draw.uniform(math.log(SHORTEST_S), math.log(LONGEST_S)))
    first_s = runtime_s * draw.uniform(1.2, 2.0)
    steps = SOFT if draw.random() < 0.5 else SOFT[:1]
    return Drawn(gpus, runtime_s, tuple((first_s * times, reward) for times, reward in steps))


def width(share: float, theta: float, mix: Mapping[int, float] = WIDTHS) -> int:
    """The width at which the tilted distribution reaches `share`, of [0, 1)."""
    shares = list(accumulate(p * w**theta for w, p in mix.items()))
    at = bisect_left(shares, share * shares[-1])
    return tuple(mix)[min(at, len(mix) - 1)]


def jobs(gpus: int, count: int, load: float, seed: int) -> list[Drawn]:
    """`count` jobs that can make at least their last deadline in whole leases, at that load."""
    draw = random.Random(seed)
    drawn: list[Drawn] = []
    while len(drawn) < count:
        job = draw_one(draw)
        if leases(job.runtime_s) <= before(job.steps[-1][0]):
            drawn.append(job)
    shares = [draw.random() for _ in drawn]
    mix = WIDE if gpus >= LARGE_GPUS else WIDTHS
    low, high = -8.0, 8.0
    for _ in range(_TILTS):
        theta = (low + high) / 2
        if load_of(_wide(drawn, shares, theta, mix), gpus) < load:
            low = theta
        else:
            high = theta
    return _wide(drawn, shares, high, mix)


def load_of(drawn: Sequence[Drawn], gpus: int) -> float:
    """The greatest demand of a stretch of leases from now on, over its capacity."""
    rows = [(job.gpus, leases(job.runtime_s), before(job.steps[0][0])) for job in drawn]
    rows = [row for row in rows if row[1] <= row[2]]
    bends = [0] * (max(last for *_, last in rows) + 2)  # of the demand over the stretch's length
    for wide, needed, last in rows:
        bends[last - needed + 1] += wide
        bends[last + 1] -= wide
    asked = accumulate(accumulate(bends[1:]))
    return max(demand / (gpus * length) for length, demand in enumerate(asked, 1))


def leases(runtime_s: float) -> int:
    """RL of Chronus: whole leases that a job needs."""
    return math.ceil(runtime_s / TERM_S)


def before(deadline_s: float) -> int:
    """DL of Chronus: whole leases that end by a deadline."""
    return math.floor(deadline_s / TERM_S)


def _wide(
    drawn: Sequence[Drawn], shares: Sequence[float], theta: float, mix: Mapping[int, float]
) -> list[Drawn]:
    return [job._replace(gpus=width(u, theta, mix)) for job, u in zip(drawn, shares, strict=True)]
