"""May a deadline be promised? The fluid test, then the holes of the kept plan, then a new plan.

A `Book` is what has been promised: the guaranteed jobs and the kept plan that serves all of them. A job
enters only with a plan that serves it and everybody before it, so that the book's plan is the promise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import ceil

from dlq_master.policy.promise.fluid import Demand
from dlq_master.policy.promise.holes import insert
from dlq_master.policy.promise.leases import (
    Grid,
    SloJob,
    due_s,
    last_slots,
    needed,
    runtime_s,
    width,
    within,
)
from dlq_master.policy.promise.plan import Plan, faults, free_gpus, slots_of
from dlq_master.policy.promise.realise import serve_all
from dlq_master.policy.promise.selector import never


class Ground(StrEnum):
    """What decided on a promise."""

    QUOTA = "quota"  # its team has promised GPUs enough
    WIDTH = "width"  # no slot has so many GPUs
    REACH = "reach"  # its deadline is too early even if it were alone
    FLUID = "fluid"  # some stretch of slots has not enough GPUs, whatever the plan
    PLAN = "plan"  # in fractions it fits, but no slots were found
    HOLES = "holes"  # admitted: the kept plan has room
    REPLAN = "replan"  # admitted: a new plan serves everybody


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """The guaranteed jobs, each with its promised step, and the plan that keeps all promises.

    `quotas`: the GPUs of guaranteed jobs that a team may have at any time, as they were asked for; a
    team that is not named has no limit.
    """

    grid: Grid
    jobs: tuple[SloJob, ...] = ()
    plan: Plan = field(default_factory=Plan)
    quotas: Mapping[str, int] | None = None

    def used(self, team: str) -> int:
        """The GPUs of a team's guaranteed jobs."""
        return sum(job.gpus for job in self.jobs if job.team == team)

    def demand(self, horizon: int) -> Demand:
        """W(t) of all promises."""
        made = Demand(self.grid, horizon)
        made.add_all(row(job, job.promised or 0, self.grid) for job in self.jobs)
        return made

    def horizon(self) -> int:
        """Slots up to the last promised deadline, or to the plan's end."""
        lasts = (last_slots(job, job.promised or 0, self.grid) for job in self.jobs)
        return max([slots_of(self.plan), len(self.grid.capacity), *lasts])

    def moved_on(self, slots: int, jobs: Iterable[SloJob]) -> Book:
        """The same `slots` slots later: `jobs` are those that have not ended, as they are then."""
        left = tuple(jobs)
        gone = {job.key for job in self.jobs} - {job.key for job in left}
        plan = self.plan.without(gone).shifted(slots)
        return replace(self, grid=self.grid.shifted(slots), jobs=left, plan=plan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`step` is the one promised, None for an unguaranteed job; `book` the book with the job in it."""

    by: Ground
    step: int | None = None
    book: Book

    @property
    def guaranteed(self) -> bool:
        return self.step is not None


def row(job: SloJob, step: int, grid: Grid) -> tuple[int, int, int]:
    """What a job asks of the fluid test: width, RL and DL."""
    return width(job, grid), needed(runtime_s(job), grid.term_s), last_slots(job, step, grid)


def admit(
    book: Book,
    job: SloJob,
    steps: Sequence[int] | None = None,
    *,
    demand: Demand | None = None,
    out_of_time: Callable[[], bool] = never,
) -> Verdict:
    """Promise the first of `steps` (default: all, the best first) that a plan can be found for.

    `demand`: the book's W(t), kept by the caller between admissions; it is not changed. Steps that
    fail the fluid test cost O(horizon); a new plan is made only where the kept one has no room.
    """
    quota = (book.quotas or {}).get(job.team)
    if quota is not None and book.used(job.team) + job.gpus > quota:
        return Verdict(by=Ground.QUOTA, book=book)
    reach = [step for step in within(job, book.grid) if steps is None or step in steps]
    if not reach:
        wide = width(job, book.grid) > max(book.grid.capacity)
        return Verdict(by=Ground.WIDTH if wide else Ground.REACH, book=book)
    # In several segments it may end in a later slot than in one: its tail is another.
    latest_s = due_s(job, reach[-1], book.grid)
    horizon = max(book.horizon(), ceil(latest_s / book.grid.term_s))
    if demand is None or demand.horizon < horizon:
        demand = book.demand(horizon)
    able = [step for step in reach if demand.fits(*row(job, step, book.grid))]
    if not able:
        return Verdict(by=Ground.FLUID, book=book)
    free = free_gpus(book.plan, book.jobs, book.grid, horizon)
    for step in able:
        held = insert(job, due_s(job, step, book.grid), free, book.grid)
        if held is not None:
            plan = book.plan.with_job(job.key, held)
            return Verdict(by=Ground.HOLES, step=step, book=_with(book, job, step, plan))
        jobs = (*book.jobs, replace(job, promised=step))
        if (made := replan(jobs, book.grid)) is not None:
            return Verdict(by=Ground.REPLAN, step=step, book=_with(book, job, step, made))
        if out_of_time():
            break
    return Verdict(by=Ground.PLAN, book=book)


def replan(jobs: Sequence[SloJob], grid: Grid) -> Plan | None:
    """A plan that serves every guaranteed job at its promised step; None if none of the tries does."""
    picks = {job.key: job.promised for job in jobs if job.promised is not None}
    plan = serve_all(jobs, picks, grid)
    return None if plan is None or faults(plan, jobs, grid) else plan


def renewed(book: Book) -> Book:
    """The book with a new plan where one serves every promise and ends no later; else with the kept one."""
    plan = replan(book.jobs, book.grid)
    if plan is None or slots_of(plan) > slots_of(book.plan):
        return book
    return replace(book, plan=plan)


def _with(book: Book, job: SloJob, step: int, plan: Plan) -> Book:
    return replace(book, jobs=(*book.jobs, replace(job, promised=step)), plan=plan)
