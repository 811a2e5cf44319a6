"""The sums of promises and of their plan as arrays, kept from one admission to the next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from typing import NamedTuple

from dlq_master.model.jobs.band import Segments
from dlq_master.model.late import np
from dlq_master.policy.promise.capacity.fluid import SlotDemand, Slots
from dlq_master.policy.promise.capacity.leases import (
    Grid,
    SloJob,
    due_s,
    leases,
    width,
)
from dlq_master.policy.promise.slots.plan import SlotPlan, free_gpus, hold

Row = tuple[int, int, int]  # width, RL, DL
_MORE = 1.25  # times the slots asked for: the next job may have a later deadline


def row(job: SloJob, step: int, grid: Grid) -> Row:
    """The demand of a job in the fluid test: width, RL and DL."""
    return width(job, grid), *leases(job, step, grid)


def still_kept(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows of jobs that could still be in time alone.

    The promises of the other jobs are lost, which is told when the next slot is decided. Or a job
    only seems too late until it runs in the slot that has begun. It keeps its slots, but no other
    job is refused on its account.
    """
    return (row for row in rows if row[1] <= row[2])


class Promised(NamedTuple):
    """A guaranteed job and its slots in the kept plan."""

    job: SloJob
    slots: Segments


class PromiseLedger:
    """The arrays of promises.

    `rows`: the demand of each job, by key, in the order of the book. `demand` is W(t), and `free`
    the free GPUs, for the slots up to `horizon`. That is beyond the `slots` asked for, and beyond
    every promised deadline.
    """

    __slots__ = ("_columns", "demand", "free", "rows")

    def __init__(self, jobs: Sequence[SloJob], plan: SlotPlan, grid: Grid, slots: int) -> None:
        self.rows = {job.key: row(job, job.promised or 0, grid) for job in jobs}
        self._columns: Slots | None = None
        furthest = max([slots, *[last for _, _, last in self.rows.values()]])
        self.demand = SlotDemand(grid, ceil(_MORE * furthest))
        self.demand.add_all(still_kept(self.rows.values()))
        self.free = free_gpus(plan, jobs, grid, self.horizon)

    @property
    def horizon(self) -> int:
        return self.demand.horizon

    @property
    def wide(self) -> Slots:
        """The widths of the jobs in their order."""
        return self._column(0)

    @property
    def needed(self) -> Slots:
        """The RL of the jobs."""
        return self._column(1)

    @property
    def last(self) -> Slots:
        """The DL of the jobs for their promised steps."""
        return self._column(2)

    def with_job(self, key: str, asked: Row, free: Slots) -> PromiseLedger:
        """The ledger with one more job and its demand; `free` is the room left with it."""
        other = self._with({**self.rows, key: asked}, free)
        other.demand.add(*asked)
        return other

    def exchanged(
        self, gone: Iterable[Promised], come: Iterable[Promised], jobs: Iterable[SloJob], grid: Grid
    ) -> PromiseLedger | None:
        """The ledger with some jobs replaced, which makes `jobs`; None: its horizon is too near."""
        rows, free = dict(self.rows), self.free.copy()
        other = self._with(rows, free)
        for job, slots in gone:
            wide, *_ = asked = rows.pop(job.key)
            if any(still_kept([asked])):
                other.demand.remove(*asked)
            hold(free, slots, -wide)
        for job, slots in come:
            wide, _, last = asked = rows[job.key] = row(job, job.promised or 0, grid)
            if max(last, slots[-1].end if slots else 0) > self.horizon:
                return None
            if any(still_kept([asked])):
                other.demand.add(*asked)
            hold(free, slots, wide)
        other.rows = {job.key: rows[job.key] for job in jobs}
        return other

    def _with(self, rows: dict[str, Row], free: Slots) -> PromiseLedger:
        other = PromiseLedger.__new__(PromiseLedger)
        other.rows, other.free = rows, free
        other._columns, other.demand = None, self.demand.copy()
        return other

    def _column(self, number: int) -> Slots:
        if self._columns is None:
            table: Slots = np.array([*self.rows.values()], dtype=np.int64).reshape(-1, 3)
            self._columns = np.ascontiguousarray(table.T)
        column: Slots = self._columns[number]
        return column


def latest_slot(job: SloJob, step: int, grid: Grid) -> int:
    """The slots up to a step's deadline. In several segments a job may end in a later slot than in
    one.
    """
    return ceil(due_s(job, step, grid) / grid.term_s)
