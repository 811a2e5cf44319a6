"""The cases of `reclaim`: drawn from these seeds, which were fixed before the code.

A case is a set of lent 8-GPU servers after a long day. Jobs took the tightest of a few servers that
could hold them. Many have left, and others took their room, so that wide jobs lie in pieces. A
number of the servers is asked back.

`FULL_RECIPES` came later. The first figures had shown that at 70 and 85 % a third to a fifth of the
servers is idle. Half of the reclaims then cost nothing. The paper's lent servers are used above 93
% (Figure 7).

`SCATTERED_RECIPES` came last, with seeds of their own. A job's workers have 2, 4 or 8 GPUs, and
each is on any server with room for it. The quality of Algorithm 1 depends on the workers' places.
These are like the study behind the goal of the benchmark (a third of a reclaim's jobs too many at
60 servers of 520).

`USUAL_RECIPES` are the 20 of 520 of issue 9, with the seeds of the first.

In `ELASTIC_RECIPES` a quarter of the jobs of two GPUs and more can go on with any half of their
GPUs. Their base is counted where most of them lie.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

SEEDS = (3, 17, 29, 43, 59)
SCATTERED_SEEDS = (101, 103, 107, 109, 113)
GPUS_PER_SERVER = 8
SEEN = 3  # servers that a job has the choice of
TURNOVER = 2  # the number of departed jobs over the present ones

# Widths of jobs, and how many in a hundred have them.
WIDTHS = {1: 26, 2: 16, 4: 18, 8: 20, 16: 11, 32: 6, 64: 3}
DEMANDS = (30, 60, 100, 200)
BUSY = (0.70, 0.85)
WORKERS = (2, 4, 8)  # GPUs of a worker, where they are scattered


class Case(NamedTuple):
    """`jobs`: for each its GPUs by server; of those on several servers a share is `elastic`."""

    name: str
    servers: int
    wanted: int
    jobs: tuple[dict[int, int], ...]
    elastic: float = 0.0


class Recipe(NamedTuple):
    """The number of servers, the share of their GPUs in use, the number of them asked back; workers
    `scattered`?
    """

    servers: int
    busy: float
    wanted: int
    scattered: bool = False
    elastic: float = 0.0

    @property
    def name(self) -> str:
        lie = ", scattered" if self.scattered else ""
        lie += f", {self.elastic:.0%} elastic" if self.elastic else ""
        return f"{self.servers} servers, {self.wanted} wanted, {self.busy:.0%} busy{lie}"


RECIPES = tuple(Recipe(520, busy, wanted) for busy in BUSY for wanted in DEMANDS)
FULL_RECIPES = tuple(Recipe(520, 0.95, wanted) for wanted in DEMANDS)
SCATTERED_RECIPES = tuple(recipe._replace(scattered=True) for recipe in RECIPES)
# The sizes of an inference side's requests.
USUAL_RECIPES = tuple(Recipe(520, busy, 20) for busy in (*BUSY, 0.95))
ELASTIC_RECIPES = tuple(
    Recipe(520, busy, wanted, scattered, elastic=0.25)
    for busy, scattered in ((0.85, False), (0.95, False), (0.85, True))
    for wanted in (20, 100, 200)
)
LARGE_RECIPES = (Recipe(2000, 0.70, 200), Recipe(2000, 0.85, 500))


def cases(recipe: Recipe) -> Iterator[Case]:
    """One case for each seed."""
    for seed in SCATTERED_SEEDS if recipe.scattered else SEEDS:
        yield draw(recipe, seed)


def draw(recipe: Recipe, seed: int) -> Case:
    """The same seed draws the same case."""
    dice = random.Random(f"{recipe.name}/{seed}")
    free = [GPUS_PER_SERVER] * recipe.servers
    jobs: list[dict[int, int]] = []
    until = round(sum(free) * (1.0 - recipe.busy))
    _fill(free, jobs, until, dice, recipe.scattered)
    for _ in range(TURNOVER * len(jobs)):
        for server, gpus in jobs.pop(dice.randrange(len(jobs))).items():
            free[server] += gpus
        _fill(free, jobs, until, dice, recipe.scattered)
    return Case(
        f"{recipe.name}, seed {seed}", recipe.servers, recipe.wanted, tuple(jobs), recipe.elastic
    )


def _fill(
    free: list[int], jobs: list[dict[int, int]], until: int, dice: random.Random, scattered: bool
) -> None:
    """Start jobs until no more than `until` GPUs are free."""
    left = sum(free)
    while left > until:
        (width,) = dice.choices(tuple(WIDTHS), tuple(WIDTHS.values()))
        width = min(width, left)
        jobs.append((_scatter if scattered else _place)(free, width, dice))
        left -= width


def _place(free: list[int], width: int, dice: random.Random) -> dict[int, int]:
    """On the tightest of `SEEN` servers that hold it; a job that none holds takes free GPUs
    anywhere.
    """
    held: dict[int, int] = {}
    while width:
        fits = [server for server, gpus in enumerate(free) if gpus >= width]
        some = fits or [server for server, gpus in enumerate(free) if gpus]
        seen = dice.sample(some, min(SEEN, len(some)))
        sign = 1 if fits else -1
        server = min(seen, key=lambda server: (sign * free[server], server))
        taken = min(width, free[server])
        held[server] = taken
        free[server] -= taken
        width -= taken
    return held


def _scatter(free: list[int], width: int, dice: random.Random) -> dict[int, int]:
    """Each worker on any server that holds it; where none does, its GPUs one by one."""
    held: dict[int, int] = {}
    each = dice.choice(WORKERS)
    while width:
        gpus = min(each, width)
        fits = [server for server, room in enumerate(free) if room >= gpus]
        if not fits:
            gpus, fits = 1, [server for server, room in enumerate(free) if room]
        server = dice.choice(fits)
        held[server] = held.get(server, 0) + gpus
        free[server] -= gpus
        width -= gpus
    return held
