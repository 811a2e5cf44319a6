"""The relaxation, rounded and laid out; where jobs get no slots, others concede room and it is
tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dlq_master.policy.promise.capacity.leases import Grid, SloJob
from dlq_master.policy.promise.slots.plan import SlotPlan
from dlq_master.policy.promise.slots.realise import Worth, realise, refill, worth
from dlq_master.policy.promise.solver.core import improve
from dlq_master.policy.promise.solver.relax import options, relax
from dlq_master.policy.promise.solver.rounding import DeadlineChoice, choose, swap

MOST_ROUNDS = 6  # of concessions


def solve(
    jobs: Sequence[SloJob], grid: Grid, out_of_time: Callable[[], bool], core_s: float
) -> tuple[SlotPlan, float, Mapping[str, int]]:
    """The best plan found, a bound on the reward of any plan, and the steps meant to be met."""
    made = options(jobs, grid)
    relaxed = relax(made, out_of_time)
    if relaxed is None:  # the solver gave up: try each job's best deadline, and miss most
        firsts = {
            jobs[i].key: int(made.step[columns[0]])
            for i, columns in enumerate(made.columns)
            if columns
        }
        plan, _ = realise(jobs, firsts, grid, out_of_time)
        return refill(plan, jobs, grid, out_of_time), float("inf"), firsts
    choice, bound = choose(made, relaxed, out_of_time), relaxed.bound
    if not out_of_time():
        bound = min(bound, improve(choice, relaxed, core_s))
    first, best, value = _steps(choice), SlotPlan(), None
    for _ in range(MOST_ROUNDS):
        plan, missed = realise(jobs, _steps(choice), grid, out_of_time)
        plan = refill(plan, jobs, grid, out_of_time)
        found = worth(plan, jobs, grid)
        if found.beats(value):
            best, value = plan, found
        if not missed or _no_better(choice, value, jobs) or out_of_time():
            break
        for miss in missed:
            choice.concede(miss.slot, miss.lack)
        swap(choice, relaxed, out_of_time)
    return best, bound, first


def _no_better(choice: DeadlineChoice, value: Worth | None, jobs: Sequence[SloJob]) -> bool:
    """Whether no plan of this choice, or of one that concedes more, could beat the best."""
    return value is not None and not value.broken and len(jobs) + choice.gain <= value.reward


def _steps(choice: DeadlineChoice) -> dict[str, int]:
    """The chosen step of each job, by key."""
    made = choice.made
    picked = enumerate(choice.picks.tolist())
    return {made.jobs[job].key: int(made.step[column]) for job, column in picked if column >= 0}
