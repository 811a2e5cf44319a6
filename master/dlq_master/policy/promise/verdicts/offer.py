"""The promise that could be made instead: a later deadline, fewer GPUs, or the same after others
end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import ceil

from dlq_master.model.jobs.reward import FULL, Step
from dlq_master.policy.promise.capacity.fluid import SlotDemand
from dlq_master.policy.promise.capacity.leases import (
    FARTHEST,
    Grid,
    SloJob,
    needed,
    runtime_s,
    width,
)
from dlq_master.policy.promise.capacity.rules import VerdictGround
from dlq_master.policy.promise.slots.holes import earliest
from dlq_master.policy.promise.slots.plan import completion_s
from dlq_master.policy.promise.solver.selector import never
from dlq_master.policy.promise.verdicts.admission import AdmissionVerdict, PromiseBook, admit

PLAN_CHECKS = 10


class FixKind(StrEnum):
    """The kinds of changes that the user can make."""

    FEWER_GPUS = "fewer_gpus"  # `gpus`, with the deadline as it was asked for, or the one `at_s`
    LATER_DEADLINE = "later_deadline"  # `at_s`: the earliest that can be promised
    WAIT_FOR_QUOTA = "wait_for_quota"  # `at_s`: when its team's promises leave room


@dataclass(frozen=True, slots=True, kw_only=True)
class Fix:
    """A change with which the job could be promised now; for a quota, from `at_s` on."""

    kind: FixKind
    at_s: float | None = None
    gpus: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseOffer:
    """`earliest_s`: the earliest deadline that could be promised now; None: none could. `fix`: the
    cheapest change.

    Fewer GPUs with the same deadline cost the user nothing, so they come first.
    """

    earliest_s: float | None
    fix: Fix | None


def offer(
    book: PromiseBook,
    job: SloJob,
    verdict: AdmissionVerdict,
    work_by_gpus: Mapping[int, float] | None = None,
    *,
    out_of_time: Callable[[], bool] = never,
) -> PromiseOffer:
    """The offer to a refused job.

    `work_by_gpus`: `work_s` at other widths, as far as known. A job that is too wide and names no
    other sizes is offered as many GPUs as there are, as if it scaled linearly.
    """
    if verdict.by is VerdictGround.QUOTA:
        waits = _quota_opens(book, job)
        return PromiseOffer(
            earliest_s=None, fix=waits or _narrower(book, job, work_by_gpus, out_of_time)
        )
    too_wide = verdict.by is VerdictGround.WIDTH
    at_s = None if too_wide else earliest_deadline(book, job, out_of_time)
    fix = _narrower(book, job, work_by_gpus, out_of_time)
    if fix is None and too_wide and verdict.have:
        fix = _as_wide_as_there_is(book, job, int(verdict.have), out_of_time)
    if fix is None and at_s is not None:
        fix = Fix(kind=FixKind.LATER_DEADLINE, at_s=at_s)
    return PromiseOffer(earliest_s=at_s, fix=fix)


def earliest_deadline(
    book: PromiseBook, job: SloJob, out_of_time: Callable[[], bool] = never
) -> float | None:
    """The earliest deadline found, in seconds from the plan's start; None: too wide, or too long.

    One scan gives the fewest slots that the fluid test allows, and holes of the kept plan give a
    sure end. Between them at most `PLAN_CHECKS` bisections try new plans.
    """
    grid = book.grid
    wide, slots = width(job, grid), needed(runtime_s(job), grid.term_s)
    if wide > grid.at(len(grid.capacity) - 1):
        return None
    # After the last promise every slot is free, and each may hold a segment of its own.
    horizon = min(book.horizon() + slots + 1, FARTHEST - 1)
    demand: SlotDemand = book.demand(horizon)
    low = demand.earliest(wide, slots)
    held = earliest(job, book.free(horizon), grid)
    if held is None:
        return None
    best_s = _promised_s(completion_s(job, held, grid), grid)
    if low is None:  # promises hold more than new ones may, so only `best_s` is certain
        return best_s
    high = ceil(best_s / grid.term_s)
    for _ in range(PLAN_CHECKS):
        if low >= high or out_of_time():
            break
        middle = (low + high) // 2
        asked = job._replace(steps=(Step(middle * grid.term_s, FULL),), promised=None, team="")
        found = admit(book, asked, demand=demand, out_of_time=out_of_time)
        if found.guaranteed:
            # A deadline closer by a part of a slot might not be found again, so this one is told.
            best_s, high = min(best_s, middle * grid.term_s), middle
        else:
            low = middle + 1
    return best_s


def _promised_s(completed_s: float, grid: Grid) -> float:
    """The deadline that an end meets as the grid counts deadlines."""
    if grid.whole_leases:
        return needed(completed_s, grid.term_s) * grid.term_s
    return completed_s


def _narrower(
    book: PromiseBook,
    job: SloJob,
    work_by_gpus: Mapping[int, float] | None,
    out_of_time: Callable[[], bool],
) -> Fix | None:
    """The most GPUs below the requested ones with which the deadline can be promised."""
    for gpus, work_s in sorted((work_by_gpus or {}).items(), reverse=True):
        if gpus >= job.gpus or out_of_time():
            continue
        if admit(book, job._replace(gpus=gpus, work_s=work_s), out_of_time=out_of_time).guaranteed:
            return Fix(kind=FixKind.FEWER_GPUS, gpus=gpus)
    return None


def _as_wide_as_there_is(
    book: PromiseBook, job: SloJob, gpus: int, out_of_time: Callable[[], bool]
) -> Fix | None:
    """`gpus` GPUs and a deadline for them, if the run time grows as the GPUs fall."""
    made = job._replace(
        gpus=gpus, work_s=(job.work_s + job.resume_s) * job.gpus / gpus, promised=None
    )
    at_s = earliest_deadline(book, made, out_of_time)
    return None if at_s is None else Fix(kind=FixKind.FEWER_GPUS, at_s=at_s, gpus=gpus)


def _quota_opens(book: PromiseBook, job: SloJob) -> Fix | None:
    """When enough of the team's guaranteed jobs have ended by the kept plan; None: never."""
    quota = book.quota(job.team)
    if quota is None or job.gpus > quota:
        return None
    used = book.used(job.team)
    ends = sorted(
        (completion_s(made, book.plan.segments.get(made.key, ()), book.grid), made.gpus)
        for made in book.jobs
        if made.team == job.team
    )
    for at_s, gpus in ends:
        used -= gpus
        if used + job.gpus <= quota:
            return Fix(kind=FixKind.WAIT_FOR_QUOTA, at_s=at_s)
    return None
