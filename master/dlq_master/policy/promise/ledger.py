"""What promises and their plan come to, as arrays: worked out once, and kept from one admission to the next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil

import numpy as np

from dlq_master.policy.promise.fluid import Demand, Slots
from dlq_master.policy.promise.leases import (
    Grid,
    SloJob,
    due_s,
    leases,
    width,
)
from dlq_master.policy.promise.plan import Plan, free_gpus

_MORE = 1.25  # of the slots that are asked for: the next job may have a later deadline


def row(job: SloJob, step: int, grid: Grid) -> tuple[int, int, int]:
    """What a job asks of the fluid test: width, RL and DL."""
    return width(job, grid), *leases(job, step, grid)


def still_kept(rows: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    """Without those that are too late even if they were alone: a promise that is lost, and is told so when the
    next slot is decided. It keeps its slots until then, but nobody else is refused for what no plan can give it."""
    return (row for row in rows if row[1] <= row[2])


class Ledger:
    """By job, in the order of the book: `wide`, `needed` (RL) and `last` (DL of the promised step).
    `demand` is W(t) and `free` the GPUs that nobody holds, for the slots up to `horizon`: beyond the `slots` asked
    for, and beyond every promised deadline."""

    __slots__ = ("demand", "free", "last", "needed", "wide")

    def __init__(self, jobs: Sequence[SloJob], plan: Plan, grid: Grid, slots: int) -> None:
        rows = [row(job, job.promised or 0, grid) for job in jobs]
        table: Slots = np.array(rows, dtype=np.int64).reshape(-1, 3)
        self.wide, self.needed, self.last = (np.ascontiguousarray(column) for column in table.T)
        horizon = ceil(_MORE * max(slots, int(self.last.max(initial=0))))
        self.demand = Demand(grid, horizon)
        self.demand.add_all(still_kept(rows))
        self.free = free_gpus(plan, jobs, grid, horizon)

    @property
    def horizon(self) -> int:
        return self.demand.horizon

    def with_job(self, asked: tuple[int, int, int], free: Slots) -> Ledger:
        """The same with a job more, as `row` has it, and what is free with it."""
        other = Ledger.__new__(Ledger)
        wide, needed, last = asked
        other.wide = np.append(self.wide, wide)
        other.needed = np.append(self.needed, needed)
        other.last = np.append(self.last, last)
        other.demand = self.demand.copy()
        other.demand.add(wide, needed, last)
        other.free = free
        return other


def latest_slot(job: SloJob, step: int, grid: Grid) -> int:
    """Slots up to a step's deadline: in several segments it may end in a later one than in one."""
    return ceil(due_s(job, step, grid) / grid.term_s)
