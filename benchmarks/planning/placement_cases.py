"""The cases of `placement`: drawn from these seeds, which were fixed before the code.

A case is a cluster of 8-GPU nodes with many running jobs, and a batch of small jobs (1 to 15 GPUs).
All of them fit when only numbers of GPUs count. The question is the least number of nodes for each.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

SEEDS = (11, 23, 37, 41, 53)
GPUS_PER_NODE = 8
SMALL = 16  # from this number of GPUs on a job is large: section 3.4.2 of Chronus

# How many GPUs are free on a node that is not full.
FREE = {1: 14, 2: 12, 3: 10, 4: 12, 5: 8, 6: 8, 7: 8, 8: 12}
# Consolidation-friendly widths, and hostile ones between them.
WIDTHS = {1: 16, 2: 18, 3: 12, 4: 18, 5: 7, 6: 8, 7: 5, 8: 10, 9: 1, 10: 2, 12: 2, 15: 1}
# t_2 / t_1 of ten kinds of jobs: how long an iteration takes on two nodes, over one.
KINDS = (1.02, 1.05, 1.08, 1.12, 1.18, 1.25, 1.35, 1.5, 1.75, 2.0)


class Case(NamedTuple):
    """`free`: GPUs of each node. `jobs`: the GPUs of each, and its t_2 / t_1."""

    name: str
    free: tuple[int, ...]
    jobs: tuple[tuple[int, float], ...]


class Recipe(NamedTuple):
    """`slack`: free GPUs over the requested ones, as far as the nodes have them; jobs that do not
    fit then are left out. `distinct`: no two jobs have the same t_2 / t_1.
    """

    nodes: int
    jobs: int
    slack: float
    distinct: bool = False

    @property
    def name(self) -> str:
        kinds = ", all distinct" if self.distinct else ""
        return f"{self.nodes} nodes, {self.jobs} jobs, slack {self.slack:g}{kinds}"


# 200 jobs are more than 96 busy nodes hold: those cases are limited by the load.
RECIPES = tuple(
    Recipe(96, jobs, slack, distinct)
    for jobs in (50, 100, 200)
    for slack in (1.0, 1.15)
    for distinct in (False, True)
)
LARGE_RECIPES = tuple(Recipe(1250, 1500, slack) for slack in (1.0, 1.15))


def cases(recipe: Recipe) -> Iterator[Case]:
    """One case for each seed."""
    for seed in SEEDS:
        yield draw(recipe, seed)


def draw(recipe: Recipe, seed: int) -> Case:
    """The same seed draws the same case."""
    dice = random.Random(f"{recipe.name}/{seed}")
    widths = dice.choices(tuple(WIDTHS), tuple(WIDTHS.values()), k=recipe.jobs)
    kinds = [
        dice.uniform(KINDS[0], KINDS[-1]) if recipe.distinct else dice.choice(KINDS) for _ in widths
    ]
    free = _free(recipe.nodes, round(sum(widths) * recipe.slack), dice)
    budget, jobs = round(sum(free) / recipe.slack), []
    for width, kind in zip(widths, kinds, strict=True):
        if width <= budget:
            budget -= width
            jobs.append((width, kind))
    return Case(f"{recipe.name}, seed {seed}", tuple(free), tuple(jobs))


def _free(nodes: int, wanted: int, dice: random.Random) -> list[int]:
    """Nodes until this number of GPUs is free, the others full; in no order."""
    free = []
    for count in dice.choices(tuple(FREE), tuple(FREE.values()), k=nodes):
        free.append(min(count, wanted))
        wanted -= free[-1]
    dice.shuffle(free)
    return free
