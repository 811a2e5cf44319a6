"""One SLO scheduling cycle of Chronus (section 3.3.4): the paper's program with its cached
solution.

1. If the cached solution earns as much as if every job were alone, it is optimal, and no solver
   runs.
2. The program is solved. A quarter of the budget stays for the next step.
3. Without an answer it is solved from the cached solution: the paper's smaller search space. Jobs
   that meet their best deadline there keep their slots, and only the others are chosen anew.
4. Without an answer again, the cached solution holds.

A solution replaces the cached one only if it is better: in kept promises, then in reward, then in
stops. `Selection.source` names the origin of the answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlq_master.policy.promise.capacity.leases import Grid, SloJob, first_within
from dlq_master.policy.promise.slots.mend import mended
from dlq_master.policy.promise.slots.plan import SlotPlan, faults, step_made
from dlq_master.policy.promise.slots.realise import worth
from dlq_master.policy.promise.solver.budget import ProgramBudget
from dlq_master.policy.promise.solver.printed import Solved, solved
from dlq_master.policy.promise.solver.selector import (
    Selection,
    SlotSource,
    selection_of,
    unchanged_if_best,
    without_what_cannot_be_kept,
)

SPARED = 0.25  # of the budget: for the smaller program, where the whole one gave no answer


def printed_cycle(
    jobs: Sequence[SloJob],
    grid: Grid,
    kept: SlotPlan,
    budget: ProgramBudget,
    *,
    objective: bool = True,
) -> Selection:
    """The jobs with SLO leases, by the program. `objective`: False accepts any solution."""
    whole = kept.without(kept.segments.keys() - {job.key for job in jobs})
    sound = not faults(whole, jobs, grid)
    if sound and (known := unchanged_if_best(jobs, grid, whole)) is not None:
        return known
    if sound and not objective and all(job.key in whole.segments for job in jobs):
        return selection_of(whole, jobs, grid, _reward_if_alone(jobs, grid), SlotSource.KEPT, {})
    wanted = without_what_cannot_be_kept(jobs, grid)
    cached = whole if sound else mended(whole, jobs, grid).plan
    made = _answer(wanted, grid, cached, budget, objective=objective)
    bound = min(_reward_if_alone(jobs, grid), made.bound or float("inf"))
    if made.plan is None:
        source = SlotSource.KEPT if made.impossible else SlotSource.CACHED
        return selection_of(cached, jobs, grid, bound, source, {})
    if worth(made.plan, jobs, grid).beats(worth(cached, jobs, grid)):
        return selection_of(made.plan, jobs, grid, bound, SlotSource.PRINTED, {})
    return selection_of(cached, jobs, grid, bound, SlotSource.KEPT, {})


def _answer(
    jobs: Sequence[SloJob],
    grid: Grid,
    cached: SlotPlan,
    budget: ProgramBudget,
    *,
    objective: bool,
) -> Solved:
    """The answer of the whole program, else of the smaller one. The bound is that of the whole."""
    made = solved(jobs, grid, budget, objective=objective, spared=SPARED)
    if made.plan is not None or made.impossible:
        return made
    served = _served(jobs, grid, cached)
    if not served.segments:
        return made
    rest = solved(jobs, grid, budget, served, objective=objective)
    return made._replace(plan=rest.plan)


def _served(jobs: Sequence[SloJob], grid: Grid, cached: SlotPlan) -> SlotPlan:
    """The slots of jobs that meet the best deadline in their reach."""
    best = {}
    for job in jobs:
        slots, first = cached.segments.get(job.key, ()), first_within(job, grid)
        if slots and first is not None and step_made(job, slots, grid) == first:
            best[job.key] = slots
    return SlotPlan(best)


def _reward_if_alone(jobs: Sequence[SloJob], grid: Grid) -> float:
    """The reward if every job were alone."""
    firsts = [(job, first_within(job, grid)) for job in jobs]
    return sum(1.0 if first is None else job.steps[first].reward for job, first in firsts)
