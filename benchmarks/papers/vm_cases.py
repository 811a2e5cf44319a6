"""Jobs with due dates for rented nodes, and the seeds that `vm_allocation` draws them from.

The seeds were written down before the solvers that they judge. A case has N nodes and 10 N jobs, as
in section 4.1 of the path relinking paper. The rest is invented. Arrivals are exponential with a
mean of 75,000 s / N / load. A job takes t(1) / g**a on g GPUs of a K80, with a uniform in [0.75,
0.95] and t(1) lognormal around 6e5 s. An M60 is 1.05 to 2 times as fast. Due dates are 1 to 3 times
the shortest run time after the submit, and weights uniform in [0.003, 0.015] $/s. The catalogue is
its Table 2.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import NamedTuple

LOADS = (1.0, 1.5, 2.0)
SEEDS = {10: (8101, 8102, 8103), 20: (8201, 8202, 8203)}  # by nodes
POINT_SEEDS = (8301, 8302, 8303, 8304, 8305)  # single decisions: 100 nodes, 450 jobs
POINT_NODES, POINT_JOBS = 100, 450
SCALE_SEED = 8401  # one whole replay at 100 nodes

# name, GPU type, GPUs, $/h
TABLE_2 = (
    ("NC6", "K80", 1, 0.56),
    ("NC12", "K80", 2, 1.13),
    ("NC24", "K80", 4, 2.25),
    ("NV6", "M60", 1, 0.62),
    ("NV12", "M60", 2, 1.24),
    ("NV24", "M60", 4, 2.48),
    ("NC48", "K80", 8, 4.48),
    ("NV48", "M60", 8, 4.96),
)
MOST_GPUS = 8
_MEAN_GAP_S, _JOBS_PER_NODE = 75_000.0, 10
_MEDIAN_S, _SIGMA = 6e5, 0.5
_EXPONENT, _FASTER = (0.75, 0.95), (1.05, 2.0)
_DUE, _WEIGHT = (1.0, 3.0), (0.003, 0.015)


class Drawn(NamedTuple):
    """One job; `times_s` by GPU type, for 1, 2, ... GPUs. The due date is an instant."""

    submit_s: float
    due_s: float
    weight: float
    times_s: dict[str, tuple[float, ...]]
    iterations: int = 1  # a second each on one K80


def case(nodes: int, load: float, seed: int) -> list[Drawn]:
    """All jobs of a case, in the order of their submits."""
    return list(_drawn(random.Random(seed), nodes, load))


def point(seed: int) -> list[Drawn]:
    """The jobs of one decision at 2,100,000 s: under way for different times, some of them late."""
    draw = random.Random(seed)
    now_s = 2.1e6
    found = []
    for job in _drawn(draw, POINT_JOBS // _JOBS_PER_NODE, 1.0):
        submit_s = now_s - draw.uniform(0.0, 6e5)
        left = draw.uniform(0.1, 1.0)
        times_s = {kind: tuple(left * t for t in times) for kind, times in job.times_s.items()}
        found.append(
            job._replace(
                submit_s=submit_s, due_s=submit_s + job.due_s - job.submit_s, times_s=times_s
            )
        )
    return found


def _drawn(draw: random.Random, nodes: int, load: float) -> Iterator[Drawn]:
    submit_s = 0.0
    for _ in range(nodes * _JOBS_PER_NODE):
        alone_s = _MEDIAN_S * math.exp(draw.gauss(0.0, _SIGMA))
        exponent, faster = draw.uniform(*_EXPONENT), draw.uniform(*_FASTER)
        k80 = tuple(alone_s / gpus**exponent for gpus in range(1, MOST_GPUS + 1))
        times_s = {"K80": k80, "M60": tuple(time_s / faster for time_s in k80)}
        due_s = submit_s + draw.uniform(*_DUE) * times_s["M60"][-1]
        yield Drawn(submit_s, due_s, draw.uniform(*_WEIGHT), times_s, round(alone_s))
        submit_s += draw.expovariate(nodes * load / _MEAN_GAP_S)
