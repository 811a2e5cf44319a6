"""The jobs with SLO leases, and their slots, for the most reward (Chronus, section 3.3.4).

1. If every job's first deadline fits the prefix-capacity model, that is the choice.
2. Else its relaxation (`relax`), whose value is the bound, is rounded (`rounding`).
3. The choice is laid out over slots (`realise`), and holes are filled with the other jobs.
4. The kept plan is the promise, mended where it has faults. A new plan replaces it only if it
   serves every guaranteed job and earns more. There is always an answer, however little time is
   left.

The module has no clock. `out_of_time` is asked between the steps, and says when to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from dlq_master.policy.promise.capacity.leases import Grid, SloJob, first_within, width, within
from dlq_master.policy.promise.slots.mend import fit, keepable, mended
from dlq_master.policy.promise.slots.plan import (
    SlotPlan,
    keeps_promise,
    left_free,
    ordered,
    step_made,
    steps_made,
    stops,
)
from dlq_master.policy.promise.slots.realise import realise, refill, worth


class Unserved(StrEnum):
    """Why a job meets none of its deadlines in a plan."""

    TOO_WIDE = "too_wide"  # more GPUs than any slot has
    OUT_OF_REACH = "out_of_reach"  # too late for all its deadlines even if it were alone
    OUTBID = "outbid"  # others earn more with the same GPUs
    NO_SLOTS = "no_slots"  # it fits in fractions, but no slots were found


class SlotSource(StrEnum):
    """The origin of a plan."""

    FIRST = "first"  # all first deadlines fit
    PRINTED = "printed"  # the time-indexed program of the paper
    SOLVED = "solved"  # the relaxation, rounded
    KEPT = "kept"  # the kept plan, its holes filled
    CACHED = "cached"  # the kept plan: the program of the paper gave no answer within its limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A plan and its value. `objective`: its reward; `bound`: no plan earns more; a late job earns
    1.

    `steps`: the step that each job meets, by key. `broken`: guaranteed jobs that the plan does not
    serve. That happens only if capacity or run times have changed since the promise.
    """

    plan: SlotPlan
    objective: float
    bound: float
    source: SlotSource
    steps: Mapping[str, int]
    unserved: Mapping[str, Unserved]
    broken: tuple[str, ...]
    stops: int

    @property
    def gap(self) -> float:
        """(bound - objective) / bound."""
        return (self.bound - self.objective) / self.bound if self.bound else 0.0


def never() -> bool:
    """No limit."""
    return False


def select(
    jobs: Sequence[SloJob],
    grid: Grid,
    kept: SlotPlan | None = None,
    *,
    out_of_time: Callable[[], bool] = never,
    core_s: float = 0.0,
) -> Selection:
    """The best plan found for jobs with different keys.

    `core_s`: the seconds for a MIP on the columns that the bound leaves open (`core`); 0: none.
    """
    made = _new_plan(without_what_cannot_be_kept(jobs, grid), grid, out_of_time, core_s)
    plan, value, source = made.plan, worth(made.plan, jobs, grid), made.source
    if kept is not None:
        old = refill(mended(kept, jobs, grid).plan, jobs, grid, out_of_time)
        if not value.beats(worth(old, jobs, grid)):
            plan, source = old, SlotSource.KEPT
    return selection_of(plan, jobs, grid, made.bound, source, made.picks)


def unchanged_if_best(jobs: Sequence[SloJob], grid: Grid, kept: SlotPlan) -> Selection | None:
    """The kept plan, if it has no faults and no plan can earn more; else None.

    That is so if every job meets the first step that it could meet alone.
    """
    steps, plans = {}, kept.segments
    for job in jobs:
        made = plans.get(job.key, ())
        first = first_within(job, grid)
        if first is None or step_made(job, made, grid) != first:
            return None
        if not ordered(made) or (job.promised is not None and first > job.promised):
            return None
        steps[job.key] = first
    if plans.keys() - steps.keys() or left_free(kept, jobs, grid).min(initial=0) < 0:
        return None
    earned = sum([job.steps[steps[job.key]].reward for job in jobs])
    return Selection(
        plan=kept,
        objective=earned,
        bound=earned,
        source=SlotSource.KEPT,
        steps=steps,
        unserved={},
        broken=(),
        stops=stops(kept, jobs),
    )


class _NewPlan(NamedTuple):
    """A plan, the bound, the method that found them, and the steps that were meant to be met."""

    plan: SlotPlan
    bound: float
    source: SlotSource
    picks: Mapping[str, int]


def _new_plan(
    jobs: Sequence[SloJob], grid: Grid, out_of_time: Callable[[], bool], core_s: float
) -> _NewPlan:
    """A new plan by steps 1 to 3. Where the choice gets no slots, other jobs concede some room."""
    firsts = {job.key: reach[0] for job in jobs if (reach := within(job, grid))}
    bound = sum(job.steps[firsts[job.key]].reward if job.key in firsts else 1.0 for job in jobs)
    if fit([(job, firsts[job.key]) for job in jobs if job.key in firsts], grid):
        plan, missed = realise(jobs, firsts, grid, out_of_time)
        plan = refill(plan, jobs, grid, out_of_time)
        if not missed or out_of_time() or worth(plan, jobs, grid).reward >= bound:
            return _NewPlan(plan, bound, SlotSource.FIRST, firsts)
    # Imported here: it loads numpy and scipy.
    from dlq_master.policy.promise.solver.solve import solve

    plan, proven, picks = solve(jobs, grid, out_of_time, core_s)
    return _NewPlan(plan, min(bound, proven), SlotSource.SOLVED, picks)


def without_what_cannot_be_kept(jobs: Sequence[SloJob], grid: Grid) -> list[SloJob]:
    """The jobs, without the promises that go beyond the capacity."""
    keep = {job.key for job in keepable(jobs, grid)}
    return [job if job.key in keep else job._replace(promised=None) for job in jobs]


def selection_of(
    plan: SlotPlan,
    jobs: Sequence[SloJob],
    grid: Grid,
    bound: float,
    source: SlotSource,
    picks: Mapping[str, int],
) -> Selection:
    """A plan with its value, the jobs that it serves, and why it serves no others."""
    value = worth(plan, jobs, grid)
    steps = steps_made(plan, jobs, grid)
    late = [job for job in jobs if job.steps and job.key not in steps]
    unserved = {job.key: _reason(job, grid, job.key in picks) for job in late}
    broken = [
        job.key for job in jobs if not keeps_promise(job, plan.segments.get(job.key, ()), grid)
    ]
    return Selection(
        plan=plan,
        objective=value.reward,
        bound=max(bound, value.reward),
        source=source,
        steps=steps,
        unserved=unserved,
        broken=tuple(broken),
        stops=value.stops,
    )


def _reason(job: SloJob, grid: Grid, picked: bool) -> Unserved:
    """Why a job meets no deadline."""
    if width(job, grid) > max(grid.capacity):
        return Unserved.TOO_WIDE
    if not within(job, grid):
        return Unserved.OUT_OF_REACH
    return Unserved.NO_SLOTS if picked else Unserved.OUTBID
