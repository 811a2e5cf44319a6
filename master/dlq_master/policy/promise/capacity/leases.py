"""Jobs and deadlines counted in leases: RL, DL and rounded widths (Chronus, sections 3.3.3, 3.3.4
and 3.4.1).

Slot k of a plan is the lease from k T to (k + 1) T seconds after the plan's start. A job that runs
for `work` seconds in s segments needs RL = ceil((work + s resume) / T) slots. Chronus counts DL =
floor(D / T) slots before a deadline D, as if the last lease were used to its end. But the last
lease is used only for tail = work + s resume - (RL - 1) T seconds. So DL = floor((D - tail) / T) +
1 slots may be used.
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
# Slots that a plan looks ahead: about a year at 5 minutes a slot. A later deadline counts as the
# end of that time.
FARTHEST = 100_000


class SloJob(NamedTuple):
    """A job as a plan sees it. Times are in seconds, deadlines count from the plan's start.

    `work_s`: its remaining run time, with its margin. Each segment begins with `resume_s`, except
    one in which the job goes on where it runs now. `promised`: the step with which it was admitted;
    None: not guaranteed.
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
    """The slots of a plan: `term_s` seconds each, and the GPUs in whole nodes of each slot.

    The last number of `capacity` holds for all later slots. `whole_leases`: deadlines count as
    Chronus prints them, in leases used to their end. `rounds_up`: widths count by equation 6, else
    by equation 3.
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
        """The GPUs in a slot."""
        return self.capacity[min(slot, len(self.capacity) - 1)]

    def wide(self, gpus: int) -> int:
        """The GPUs that a plan sets aside for a job that asks for `gpus`."""
        return round_up(gpus, self.node_gpus) if self.rounds_up else gpus

    def slots(self, count: int) -> list[int]:
        """The GPUs in each of the first `count` slots."""
        first = self.capacity[:count]
        return [*first, *[self.capacity[-1]] * (count - len(first))]

    def upto(self, slots: int) -> list[int]:
        """The GPU-slots in the first 0, 1, ... `slots` slots."""
        return [0, *accumulate(self.slots(slots))]


def needed(runtime_s: float, term_s: float) -> int:
    """RL: the leases that a run time takes."""
    return max(1, ceil(runtime_s / term_s - NOISE))


def before(deadline_s: float, term_s: float) -> int:
    """DL as printed: the leases that end by a deadline."""
    return max(0, floor(deadline_s / term_s + NOISE))


def usable(deadline_s: float, runtime_s: float, term_s: float) -> int:
    """DL if the last lease is used only as long as the run time needs it."""
    return _usable(deadline_s, runtime_s, needed(runtime_s, term_s), term_s)


def _usable(deadline_s: float, runtime_s: float, count: int, term_s: float) -> int:
    tail_s = runtime_s - (count - 1) * term_s
    return max(0, floor((deadline_s - tail_s) / term_s + NOISE) + 1)


def round_up(gpus: int, node_gpus: int = 8) -> int:
    """The least of {1, 2, 4, ..., node_gpus n} that holds `gpus`. Such widths can be packed
    (Proposition 1).
    """
    if gpus >= node_gpus:
        return -(-gpus // node_gpus) * node_gpus
    width = 1
    while width < gpus:
        width *= 2
    return min(width, node_gpus)


def width(job: SloJob, grid: Grid) -> int:
    """The GPUs that a plan sets aside for a job."""
    return grid.wide(job.gpus)


def runtime_s(job: SloJob) -> float:
    """The seconds that a job needs in one segment."""
    return job.work_s + (0.0 if job.running else job.resume_s)


def due_s(job: SloJob, step: int, grid: Grid) -> float:
    """The seconds from the plan's start by which it must end to earn a step's reward."""
    deadline_s = job.steps[step].deadline_s
    return before(deadline_s, grid.term_s) * grid.term_s if grid.whole_leases else deadline_s


def leases(job: SloJob, step: int, grid: Grid) -> tuple[int, int]:
    """RL, and DL for a step. If DL is less than RL, the step is out of reach."""
    term_s, deadline_s, rest_s = grid.term_s, job.steps[step].deadline_s, runtime_s(job)
    count = needed(rest_s, term_s)
    if grid.whole_leases:
        return count, before(deadline_s, term_s)
    return count, _usable(deadline_s, rest_s, count, term_s)


def last_slots(job: SloJob, step: int, grid: Grid) -> int:
    """DL for a step."""
    return leases(job, step, grid)[1]


def first_within(job: SloJob, grid: Grid) -> int | None:
    """The first step within reach; None: there is none."""
    return next(_reached(job, grid), None)


def within(job: SloJob, grid: Grid) -> Sequence[int]:
    """The steps that a job could make if it ran alone."""
    return [*_reached(job, grid)]


def _reached(job: SloJob, grid: Grid) -> Iterator[int]:
    if width(job, grid) <= max(grid.capacity):
        for step in range(len(job.steps)):
            count, last = leases(job, step, grid)
            if last >= count:
                yield step
