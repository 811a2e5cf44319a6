"""The cases of `elastic_fill`: drawn from these seeds, which were fixed before the code.

Three kinds: many elastic jobs at one instant (the knapsack), three jobs on a few GPUs, and jobs
that arrive over time. Three jobs are few enough for the exact optimum over time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

KNAPSACK_SEEDS = (5, 19, 31, 47, 61)
THREE_SEEDS = tuple(range(120))
ARRIVAL_SEEDS = (2, 13, 23, 37, 41, 53, 67, 79)
LOADS = (0.7, 0.9, 1.2)

GPUS = 4160
PER_WORKER = {1: 50, 2: 25, 4: 15, 8: 10}  # GPUs of a worker, and how many jobs in a hundred


class Elastic(NamedTuple):
    """From `least` to `most` workers of `each` GPUs; it takes `fastest_s` on the most, and linearly
    longer on fewer."""

    least: int
    most: int
    each: int
    fastest_s: float
    submit_s: float = 0.0

    @property
    def work(self) -> float:
        """In worker-seconds."""
        return self.most * self.fastest_s


class Knapsack(NamedTuple):
    """Jobs that have their base, and the GPUs that are left."""

    name: str
    jobs: tuple[Elastic, ...]
    left: int


def knapsacks(jobs: int) -> Iterator[Knapsack]:
    """One for each seed; GPUs for about half of the jobs' greatest demand."""
    for seed in KNAPSACK_SEEDS:
        dice = random.Random(f"knapsack/{jobs}/{seed}")
        yield Knapsack(
            f"{jobs} jobs, seed {seed}", tuple(_elastic(dice) for _ in range(jobs)), GPUS
        )


def threes() -> Iterator[tuple[int, tuple[Elastic, ...]]]:
    """GPUs, and three jobs of one-GPU workers that all have their base and do not all reach their
    most.
    """
    for seed in THREE_SEEDS:
        dice = random.Random(f"three/{seed}")
        while True:
            jobs = []
            for _ in range(3):
                least = dice.randint(1, 2)
                jobs.append(Elastic(least, least + dice.randint(1, 5), 1, dice.randint(2, 30)))
            low, high = sum(job.least for job in jobs), sum(job.most for job in jobs)
            if high > low + 1:
                break
        yield dice.randint(low + 1, high - 1), tuple(jobs)


class Stream(NamedTuple):
    """Elastic jobs over time, by submit, on this number of GPUs."""

    name: str
    gpus: int
    jobs: tuple[Elastic, ...]


def streams(load: float, gpus: int = 128, jobs: int = 300) -> Iterator[Stream]:
    """Poisson arrivals whose work needs `load` of the GPUs; one for each seed."""
    for seed in ARRIVAL_SEEDS:
        dice = random.Random(f"stream/{load}/{seed}")
        made = [_elastic(dice, each=1) for _ in range(jobs)]
        gap_s = sum(job.work for job in made) / (load * gpus) / jobs
        at_s, arriving = 0.0, []
        for job in made:
            arriving.append(job._replace(submit_s=at_s))
            at_s += dice.expovariate(1.0 / gap_s)
        yield Stream(f"load {load}, seed {seed}", gpus, tuple(arriving))


def _elastic(dice: random.Random, each: int | None = None) -> Elastic:
    if each is None:
        (each,) = dice.choices(tuple(PER_WORKER), tuple(PER_WORKER.values()))
    least = dice.randint(1, 4)
    most = least * dice.randint(2, 4)
    return Elastic(least, most, each, round(dice.lognormvariate(8.0, 1.3), 1))
