"""Small situations by hand and by chance, on the catalogue of the paper's Table 2."""

from __future__ import annotations

import random

import numpy as np

from dlq_master.policy.priced.catalogue import Catalogue, NodeType
from dlq_master.policy.priced.situation import EMPTY, PricedJob, Schedule, Situation

TABLE_2 = Catalogue(
    (
        NodeType("NC6", "K80", 1, 0.56),
        NodeType("NC12", "K80", 2, 1.13),
        NodeType("NC24", "K80", 4, 2.25),
        NodeType("NV6", "M60", 1, 0.62),
        NodeType("NV12", "M60", 2, 1.24),
        NodeType("NV24", "M60", 4, 2.48),
        NodeType("NC48", "K80", 8, 4.48),
        NodeType("NV48", "M60", 8, 4.96),
    )
)
# Round prices: a GPU is 1 $/s, so that a second on one costs a dollar.
PLAIN = Catalogue(tuple(NodeType(f"A{gpus}", "A", gpus, 3600.0 * gpus) for gpus in (1, 2, 4)))


def job(
    key: int, due_s: float, *time_s: float, weight: float = 1.0, left: float = 1.0
) -> PricedJob:
    """On 1, 2, ... GPUs of the only kind."""
    return PricedJob(key, due_s, weight, np.array([time_s]), left)


def situation(
    *jobs: PricedJob, nodes: int = 2, now_s: float = 0.0, running: Schedule = EMPTY
) -> Situation:
    return Situation(now_s, jobs, PLAIN, nodes, running)


def drawn(seed: int, count: int, nodes: int, *, catalogue: Catalogue = TABLE_2) -> Situation:
    """Jobs of some hours, early and late, some of which may have certain numbers of GPUs only."""
    draw = random.Random(seed)
    jobs = []
    for key in range(count):
        alone_s, faster = draw.uniform(1e3, 1e5), draw.uniform(1.05, 2)
        exponent = draw.uniform(0.6, 0.98)
        width = int(catalogue.most.max())
        time = np.array(
            [
                [alone_s / faster**kind / gpus**exponent for gpus in range(1, width + 1)]
                for kind in range(len(catalogue.kinds))
            ]
        )
        if draw.random() < 0.2:
            time[:, [gpus - 1 for gpus in range(1, width + 1) if gpus not in (2, 4)]] = np.inf
        due_s = 1e6 + draw.uniform(-0.5, 3) * float(time.min())
        jobs.append(PricedJob(key, due_s, draw.uniform(0.003, 0.015), time, draw.uniform(0.1, 1)))
    return Situation(1e6, tuple(jobs), catalogue, nodes)


def chance(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)
