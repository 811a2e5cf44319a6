"""The jobs with SLO leases, and their slots: the most reward under the capacity of every slot
(Chronus, 3.3.4).

1. If everybody's first deadline fits the prefix-capacity model, that is the choice.
2. Else its relaxation (`relax`), whose value is the bound, is rounded (`rounding`).
3. The choice is laid out over slots (`realise`), and the holes are filled with what was left out.
4. The kept plan is the promise, mended where it has faults. The new one takes its place only if it
   serves every guaranteed job and earns no less. There is an answer, however little time is left.

The module asks no clock: `out_of_time` is asked between the steps, and says when to stop improving.
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
    """Why a job makes none of its deadlines in a plan."""

    TOO_WIDE = "too_wide"  # more GPUs than any slot has
    OUT_OF_REACH = "out_of_reach"  # too late for all its deadlines even if it were alone
    OUTBID = "outbid"  # others earn more with the same GPUs
    NO_SLOTS = "no_slots"  # it fits in fractions, but no slots were found


class SlotSource(StrEnum):
    """Where a plan comes from."""

    FIRST = "first"  # all first deadlines fit
    PRINTED = "printed"  # the time-indexed program of the paper
    SOLVED = "solved"  # the relaxation, rounded
    KEPT = "kept"  # the kept plan, its holes filled
    CACHED = "cached"  # the kept plan: the program of the paper gave no answer within its limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """`objective` counts the plan as it is, `bound` what no plan can exceed; late jobs are worth 1.

    `steps`: key to the step that the plan makes. `broken`: guaranteed jobs that it does not serve,
    which happens only when capacity or run times are no longer what they were promised with.
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
    """The best plan found for jobs with different keys. `core_s`: seconds that a MIP on the columns
    that the bound leaves open may take, 0 for none (`core`)."""
    drawn = _draw(without_what_cannot_be_kept(jobs, grid), grid, out_of_time, core_s)
    plan, value, source = drawn.plan, worth(drawn.plan, jobs, grid), drawn.source
    if kept is not None:
        old = refill(mended(kept, jobs, grid).plan, jobs, grid, out_of_time)
        if not value.beats(worth(old, jobs, grid)):
            plan, source = old, SlotSource.KEPT
    return selection_of(plan, jobs, grid, drawn.bound, source, drawn.picks)


def settled(jobs: Sequence[SloJob], grid: Grid, kept: SlotPlan) -> Selection | None:
    """The kept plan, if it has no faults and serves every job as well as if it were alone: no plan
    earns more.
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
        plan=kept, objective=earned, bound=earned, source=SlotSource.KEPT, steps=steps, unserved={}, broken=(),  # noqa: E501
        stops=stops(kept, jobs),
    )  # fmt: skip


class _Drawn(NamedTuple):
    """A plan, the bound, the method that found them, and the jobs to be served."""

    plan: SlotPlan
    bound: float
    source: SlotSource
    picks: Mapping[str, int]


def _draw(
    jobs: Sequence[SloJob], grid: Grid, out_of_time: Callable[[], bool], core_s: float
) -> _Drawn:
    """A new plan. Where the fluid choice finds no slots for somebody, others concede a little
    room.
    """
    firsts = {job.key: reach[0] for job in jobs if (reach := within(job, grid))}
    bound = sum(job.steps[firsts[job.key]].reward if job.key in firsts else 1.0 for job in jobs)
    if fit([(job, firsts[job.key]) for job in jobs if job.key in firsts], grid):
        plan, missed = realise(jobs, firsts, grid, out_of_time)
        plan = refill(plan, jobs, grid, out_of_time)
        if not missed or out_of_time() or worth(plan, jobs, grid).reward >= bound:
            return _Drawn(plan, bound, SlotSource.FIRST, firsts)
    from dlq_master.policy.promise.solver.solve import (
        solve,  # numpy and scipy only where they are needed
    )

    plan, proven, picks = solve(jobs, grid, out_of_time, core_s)
    return _Drawn(plan, min(bound, proven), SlotSource.SOLVED, picks)


def without_what_cannot_be_kept(jobs: Sequence[SloJob], grid: Grid) -> list[SloJob]:
    """The same jobs, where the promises that go beyond the capacity are none any more."""
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
    """A plan with what it earns, whom it serves, and why it serves no others."""
    value = worth(plan, jobs, grid)
    steps = steps_made(plan, jobs, grid)
    late = [job for job in jobs if job.steps and job.key not in steps]
    unserved = {job.key: _why(job, grid, job.key in picks) for job in late}
    broken = [
        job.key for job in jobs if not keeps_promise(job, plan.segments.get(job.key, ()), grid)
    ]
    return Selection(
        plan=plan, objective=value.reward, bound=max(bound, value.reward), source=source, steps=steps,  # noqa: E501
        unserved=unserved, broken=tuple(broken), stops=value.stops,
    )  # fmt: skip


def _why(job: SloJob, grid: Grid, picked: bool) -> Unserved:
    if width(job, grid) > max(grid.capacity):
        return Unserved.TOO_WIDE
    if not within(job, grid):
        return Unserved.OUT_OF_REACH
    return Unserved.NO_SLOTS if picked else Unserved.OUTBID
