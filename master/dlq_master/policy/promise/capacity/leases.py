"""Jobs and time in whole leases: RL, DL and rounded widths (Chronus, sections 3.3.3, 3.3.4 and
3.4.1).

Slot k of a plan is the lease from k T to (k + 1) T seconds after the plan's start. A job that runs
for `work` seconds in s segments needs RL = ceil((work + s resume) / T) slots. Chronus counts DL =
floor(D / T) slots before a deadline D, as if the last one were used to its end. The last lease
needs only its rest, tail = work + s resume - (RL - 1) T. So DL = floor((D - tail) / T) + 1 slots
may be used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, floor
from typing import NamedTuple

from dlq_master.model.jobs.reward import Steps

# Parts of a slot that are the noise of doubles.
NOISE = 1e-9
# Slots that a plan looks ahead: at 5 minutes a slot it is a year. A later deadline counts as one
# there: its job is promised the earlier end.
FARTHEST = 100_000


class SloJob(NamedTuple):
    """The facts of one job that a plan needs. Times in seconds, deadlines from the plan's start.

    `work_s` is what it still has to run on its GPUs, its margin included. Every segment begins with
    `resume_s`, except one that goes on where the job runs now. `promised` is the step it was
    admitted with, None if it is not guaranteed.
    """

    key: str
    gpus: int
    work_s: float
    steps: Steps
    resume_s: float = 0.0
    running: bool = False
    promised: int | None = None
    team: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The slots of a plan: their length, and the GPUs in whole nodes of each; the last number goes
    on.

    `whole_leases`: count deadlines as Chronus prints them, in leases that are used to their end.
    `rounds_up`: count widths by equation 6, and else by equation 3.
    """

    term_s: float
    capacity: tuple[int, ...]
    node_gpus: int = 8
    whole_leases: bool = False
    rounds_up: bool = True

    def __post_init__(self) -> None:
        if not self.term_s > 0:
            raise ValueError(f"term_s is {self.term_s:g}: want a positive time")
        if not self.capacity or min(self.capacity) < 0:
            raise ValueError("capacity: want a number of GPUs for at least one slot, none negative")

    def at(self, slot: int) -> int:
        """GPUs in a slot."""
        return self.capacity[min(slot, len(self.capacity) - 1)]

    def wide(self, gpus: int) -> int:
        """GPUs that a plan sets aside for a job that asks for so many."""
        return round_up(gpus, self.node_gpus) if self.rounds_up else gpus

    def slots(self, count: int) -> list[int]:
        """GPUs in each of the first `count` slots."""
        first = self.capacity[:count]
        return [*first, *[self.capacity[-1]] * (count - len(first))]

    def upto(self, slots: int) -> list[int]:
        """GPU-slots in the first 0, 1, ... `slots` slots."""
        return [0, *accumulate(self.slots(slots))]


def needed(runtime_s: float, term_s: float) -> int:
    """RL: leases that a run time takes."""
    return max(1, ceil(runtime_s / term_s - NOISE))


def before(deadline_s: float, term_s: float) -> int:
    """DL as printed: leases that end by a deadline."""
    return max(0, floor(deadline_s / term_s + NOISE))


def usable(deadline_s: float, runtime_s: float, term_s: float) -> int:
    """DL when the last lease is used only as far as the run time needs it."""
    return _usable(deadline_s, runtime_s, needed(runtime_s, term_s), term_s)


def _usable(deadline_s: float, runtime_s: float, count: int, term_s: float) -> int:
    tail_s = runtime_s - (count - 1) * term_s
    return max(0, floor((deadline_s - tail_s) / term_s + NOISE) + 1)


def round_up(gpus: int, node_gpus: int = 8) -> int:
    """The least of {1, 2, 4, ..., node_gpus n} that holds them: such widths consolidate
    (Proposition 1).
    """
    if gpus >= node_gpus:
        return -(-gpus // node_gpus) * node_gpus
    width = 1
    while width < gpus:
        width *= 2
    return min(width, node_gpus)


def width(job: SloJob, grid: Grid) -> int:
    """GPUs that a plan sets aside for a job."""
    return grid.wide(job.gpus)


def runtime_s(job: SloJob) -> float:
    """The need of a job in one segment."""
    return job.work_s + (0.0 if job.running else job.resume_s)


def due_s(job: SloJob, step: int, grid: Grid) -> float:
    """When it has to have completed to earn a step's reward, from the plan's start."""
    deadline_s = job.steps[step].deadline_s
    return before(deadline_s, grid.term_s) * grid.term_s if grid.whole_leases else deadline_s


def leases(job: SloJob, step: int, grid: Grid) -> tuple[int, int]:
    """RL, and DL: the slots that it may use for a step; fewer than it needs: the step is out of
    reach.
    """
    term_s, deadline_s, rest_s = grid.term_s, job.steps[step].deadline_s, runtime_s(job)
    count = needed(rest_s, term_s)
    if grid.whole_leases:
        return count, before(deadline_s, term_s)
    return count, _usable(deadline_s, rest_s, count, term_s)


def last_slots(job: SloJob, step: int, grid: Grid) -> int:
    """DL alone."""
    return leases(job, step, grid)[1]


def first_within(job: SloJob, grid: Grid) -> int | None:
    """The first of the steps that `within` names; None: there is none."""
    return next(_reached(job, grid), None)


def within(job: SloJob, grid: Grid) -> Sequence[int]:
    """The steps that it could make if it were alone and rewards that differ from being late."""
    return [*_reached(job, grid)]


def _reached(job: SloJob, grid: Grid) -> Iterator[int]:
    if width(job, grid) <= max(grid.capacity):
        for step in range(len(job.steps)):
            count, last = leases(job, step, grid)
            if last >= count:
                yield step
