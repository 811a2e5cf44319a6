"""What every rule of the size stage answers: how many GPUs do elastic jobs get beyond their
base?
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job


class Candidate(NamedTuple):
    """An elastic job that has its base. `held`: the GPUs it holds now; 0: it starts with this plan.
    `left_s`: its remaining time, in seconds on as many GPUs of this type as it asked for; inf:
    unknown. `price_s`: the price of another size, if it runs. `age_s`: since its submission.
    """

    job: Job
    held: int
    left_s: float = inf
    price_s: float = 0.0
    age_s: float = 0.0

    @property
    def base(self) -> int:
        """Its certain GPUs."""
        return self.job.request.base

    def next_size(self, size: int) -> int | None:
        """The next larger size that will do."""
        sizes = self.job.request.sizes
        at = bisect_right(sizes, size)
        return sizes[at] if at < len(sizes) else None

    def most(self, left: int) -> int:
        """The largest size that takes no more than so many GPUs beyond its base."""
        sizes = self.job.request.sizes
        if left <= 0:
            return self.base
        most = self.base + left
        return sizes[-1] if sizes[-1] <= most else sizes[bisect_right(sizes, most) - 1]

    def takes_s(self, size: int) -> float:
        """How long it still takes on so many GPUs."""
        return self.left_s / self.job.speed_on(size)


# Candidates in the order in which they are served. Then how many GPUs there are beyond their bases,
# with those that they hold, and whether other jobs wait that got nothing. Sizes of those that get
# more than their base: allowed ones, in all within what there is.
Grow = Callable[[Sequence[Candidate], int, bool], dict[JobId, int]]


class Sizing(NamedTuple):
    """A rule with what the plan must know of it.

    `own_nodes`: a job grows only on nodes on which it runs. `priced`: it grows only if it then ends
    sooner by more than the interruption takes, as far as its end is known. `by_goodput`: it needs
    the goodput on each size, and no run times. `at_start`: the order says on how many GPUs a job
    starts, and it keeps these.
    """

    name: str
    grow: Grow
    own_nodes: bool = False
    priced: bool = False
    by_goodput: bool = False
    at_start: bool = False
