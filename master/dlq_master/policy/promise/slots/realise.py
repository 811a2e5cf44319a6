"""From a choice of deadlines to slots: several orders are tried, and missed jobs go into holes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from dlq_master.policy.promise.capacity.fluid import Slots
from dlq_master.policy.promise.capacity.leases import Grid, SloJob, due_s, width, within
from dlq_master.policy.promise.slots.holes import insert
from dlq_master.policy.promise.slots.layout import Miss, SlotTask, lay_out
from dlq_master.policy.promise.slots.plan import (
    SlotPlan,
    free_gpus,
    hold,
    keeps_promise,
    reward,
    slots_of,
    step_made,
    stops,
)  # fmt: skip

Order = tuple[float, float]
# (a, B) of `layout`. The first four stop few jobs; MORE is tried if they break promises.
STICKY = ((0.0, inf), (1.0, inf), (0.5, inf), (2.0, inf))
# For guaranteed jobs alone: a running job gives way to one with B slots less laxity.
FIRM = ((0.0, 32.0), (1.0, 16.0), (1.0, 4.0))
MORE = ((0.0, 8.0), (1.0, 8.0), (0.0, 2.0), (0.0, 0.0))


class Worth(NamedTuple):
    """The value of a plan. Plans are compared by kept promises, then reward, then few stops."""

    broken: int
    reward: float
    stops: int

    def beats(self, other: Worth | None) -> bool:
        """Whether it is strictly better."""
        if other is None:
            return True
        return (self.broken, -self.reward, self.stops) < (other.broken, -other.reward, other.stops)


def worth(plan: SlotPlan, jobs: Sequence[SloJob], grid: Grid) -> Worth:
    """The value of a plan; a late job earns 1."""
    made = [(job, plan.segments.get(job.key, ())) for job in jobs]
    return Worth(
        sum(not keeps_promise(job, held, grid) for job, held in made),
        sum(reward(job, held, grid) for job, held in made),
        stops(plan, jobs),
    )


def realise(
    jobs: Sequence[SloJob],
    picks: Mapping[str, int],
    grid: Grid,
    out_of_time: Callable[[], bool],
) -> tuple[SlotPlan, list[Miss]]:
    """The best plan of several orders, and the jobs that it misses.

    The first plan without a miss ends the search. `picks`: key to step. Missed jobs may still fit
    into holes (`refill`).
    """
    chosen = [job for job in jobs if job.key in picks]
    tasks = [_task(job, picks[job.key], grid) for job in chosen]
    best, value = SlotPlan(), None
    missed: list[Miss] = []
    for number, (wide, stay) in enumerate((*STICKY, *MORE)):
        if value and not value.broken and number >= len(STICKY):
            break
        made = lay_out(tasks, grid, wide, stay)
        rows = zip(chosen, made.segments, strict=True)
        plan = SlotPlan({job.key: segments for job, segments in rows if segments})
        found = worth(plan, jobs, grid)
        if found.beats(value):
            best, missed, value = plan, made.missed, found
        if not made.missed or out_of_time():
            break
    return best, missed


def serve_all(
    jobs: Sequence[SloJob],
    picks: Mapping[str, int],
    grid: Grid,
    orders: Sequence[Order] = STICKY,
) -> SlotPlan | None:
    """A plan that serves every job of `picks` at its step; None: none of the orders finds one."""
    chosen = [job for job in jobs if job.key in picks]
    tasks = [_task(job, picks[job.key], grid) for job in chosen]
    for wide, stay in orders:
        made = lay_out(tasks, grid, wide, stay, all_or_nothing=True)
        if not made.missed:
            rows = zip(chosen, made.segments, strict=True)
            return SlotPlan({job.key: segments for job, segments in rows})
    return None


def _task(job: SloJob, step: int, grid: Grid) -> SlotTask:
    """The job as `layout` sees it."""
    return SlotTask(width(job, grid), job.work_s, job.resume_s, due_s(job, step, grid), job.running)


def refill(
    plan: SlotPlan, jobs: Sequence[SloJob], grid: Grid, out_of_time: Callable[[], bool]
) -> SlotPlan:
    """The plan with more jobs in its holes, and better steps for others; guaranteed jobs first."""
    wishes = []
    for number, job in enumerate(jobs):
        held = plan.segments.get(job.key, ())
        made = step_made(job, held, grid) if held else None
        better = [step for step in within(job, grid) if made is None or step < made]
        if better and (made is None or job.steps[better[0]].reward > job.steps[made].reward):
            gain = job.steps[better[0]].reward - (1.0 if made is None else job.steps[made].reward)
            wishes.append(
                (job.promised is None or keeps_promise(job, held, grid), -gain, number, better)
            )
    if not wishes:
        return plan
    latest_s = max(jobs[number].steps[steps[-1]].deadline_s for *_, number, steps in wishes)
    slots = max(slots_of(plan), int(latest_s // grid.term_s) + 1)
    free = free_gpus(plan, jobs, grid, slots)
    for *_, number, steps in sorted(wishes):
        plan = _improve(plan, jobs[number], steps, free, grid)
        if out_of_time():
            break
    return plan


def _improve(
    plan: SlotPlan, job: SloJob, steps: Sequence[int], free: Slots, grid: Grid
) -> SlotPlan:
    """The plan with a better step for one job, or as it is. The job's own slots count as free."""
    held, wide = plan.segments.get(job.key, ()), width(job, grid)
    hold(free, held, -wide)
    found = None
    for step in steps:
        if found := insert(job, due_s(job, step, grid), free, grid):
            break
    hold(free, found or held, wide)
    return plan.with_job(job.key, found) if found else plan
