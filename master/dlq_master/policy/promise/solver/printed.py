"""The lease MILP of Chronus as it is meant (section 3.3.4): admission and selection of
`chronus-paper`.

x_ki: job i holds slot k; s_pi: it meets deadline p. Corrections: (3) and (6) sum GPUs, not run
times. (4) is bilinear as printed, and linear as

    sum_{k <= DL_P} x_ki = RL_i sum_p s_pi,    sum_{k <= DL_p} x_ki >= RL_i sum_{q <= p} s_qi  for p
    < P;

(5) holds for jobs with a promise; for others it is <= 1, and a late job earns 1. R_i has one save
and one resume, and the program counts no further pause. So its solution is checked by
`completion_s`, and a job that is late by its pauses gets one more lease (`solved`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from dlq_master.model.jobs.band import Segment, Segments
from dlq_master.model.late import np, optimize, sparse
from dlq_master.policy.promise.capacity.leases import (
    Grid,
    SloJob,
    last_slots,
    needed,
    runtime_s,
    width,
    within,
)
from dlq_master.policy.promise.slots.plan import SlotPlan, keeps_promise, left_free
from dlq_master.policy.promise.solver.budget import ProgramBudget

_OPTIMAL, _LIMIT, _INFEASIBLE = 0, 1, 2
_ROUNDS = 3  # in which jobs that stop more often are given a lease more
_NONE: Mapping[str, int] = MappingProxyType({})


class Solved(NamedTuple):
    """The best plan found, its reward by the model, and the proven bound; `optimal`: these are
    equal.

    `plan` is None if no plan was found in time, or if promises cannot be kept. `impossible`: proven
    that no plan keeps all promises. `stopped`: the limit ended the call.
    """

    plan: SlotPlan | None
    objective: float
    bound: float
    optimal: bool
    impossible: bool = False
    stopped: bool = False

    @property
    def timed_out(self) -> bool:
        """Whether there was no plan within the limit."""
        return self.stopped and self.plan is None


NO_TIME = Solved(None, 0.0, 0.0, False, stopped=True)


class _Rows:
    """Rows of a sparse matrix with their lower and upper limits."""

    def __init__(self) -> None:
        self.at: list[int] = []
        self.columns: list[int] = []
        self.weights: list[float] = []
        self.low: list[float] = []
        self.high: list[float] = []

    def add(self, terms: Sequence[tuple[int, float]], low: float, high: float) -> None:
        self.at += [len(self.low)] * len(terms)
        self.columns += [column for column, _ in terms]
        self.weights += [weight for _, weight in terms]
        self.low.append(low)
        self.high.append(high)

    def constraint(self, count: int) -> optimize.LinearConstraint:
        shape = (len(self.low), count)
        matrix = sparse.csr_array((self.weights, (self.at, self.columns)), shape=shape)
        return optimize.LinearConstraint(matrix, self.low, self.high)


def solved(
    jobs: Sequence[SloJob],
    grid: Grid,
    budget: ProgramBudget,
    held: SlotPlan | None = None,
    *,
    objective: bool = True,
    spared: float = 0.0,
) -> Solved:
    """The program's plan, if it keeps every promise with the pauses that it makes.

    `held`: slots of jobs that keep them and are not chosen anew. `spared`: the share of the budget
    left to other calls.
    """
    held = held or SlotPlan()
    free = [job for job in jobs if job.key not in held.segments]
    left = _beside(held, jobs, grid)
    more: dict[str, int] = {}
    made = Solved(None, 0.0, 0.0, False)
    for _ in range(_ROUNDS):
        if budget.left_s(spared) <= 0.0:
            return NO_TIME
        call = partial(_call, free, left, objective, more)
        made = budget.charged(call, spared)
        if made.plan is None:
            return made._replace(impossible=made.impossible and not more)
        late = [job.key for job in free if not _kept(job, made.plan, grid)]
        if not late:
            return made._replace(plan=SlotPlan({**held.segments, **made.plan.segments}))
        for key in late:
            more[key] = more.get(key, 0) + 1
    return made._replace(plan=None)


def _call(
    jobs: Sequence[SloJob], grid: Grid, objective: bool, more: Mapping[str, int], limit_s: float
) -> Solved:
    """One run of the program."""
    return time_indexed(jobs, grid, limit_s, objective=objective, more=more)


def _kept(job: SloJob, plan: SlotPlan, grid: Grid) -> bool:
    """Whether the plan keeps the job's promise, or the program had no column for it."""
    return keeps_promise(job, plan.segments.get(job.key, ()), grid) or not _columns(job, grid)


def _beside(held: SlotPlan, jobs: Sequence[SloJob], grid: Grid) -> Grid:
    """The grid without the GPUs that `held` uses."""
    if not held.segments:
        return grid
    left = [max(0, int(gpus)) for gpus in left_free(held, jobs, grid)]
    return replace(grid, capacity=(*left, grid.capacity[-1]))


def time_indexed(
    jobs: Sequence[SloJob],
    grid: Grid,
    time_limit_s: float,
    *,
    fractional: bool = False,
    objective: bool = True,
    more: Mapping[str, int] = _NONE,
) -> Solved:
    """Solve the program.

    `fractional`: x in [0, 1], with no plan; equals the prefix-capacity model if capacity never
    falls. `objective`: False accepts any solution. `more`: leases beyond RL, by key. A promised job
    that is out of reach is left out.
    """
    rows, gains = _Rows(), []
    by_slot: dict[int, list[tuple[int, float]]] = {}
    held: dict[str, list[int]] = {}
    count = 0
    for job in jobs:
        steps = _columns(job, grid)
        if not steps:
            continue
        slots = last_slots(job, steps[-1], grid)
        x, s = range(count, count + slots), range(count + slots, count + slots + len(steps))
        count += slots + len(steps)
        gains += [0.0] * slots + [job.steps[step].reward - 1 for step in steps]
        held[job.key] = list(x)
        wanted = needed(runtime_s(job), grid.term_s) + more.get(job.key, 0)
        _constrain(rows, job, wanted, x, s, [last_slots(job, step, grid) for step in steps])
        wide = float(width(job, grid))
        for slot, column in enumerate(x):
            by_slot.setdefault(slot, []).append((column, wide))
    if not count:
        return Solved(SlotPlan(), float(len(jobs)), float(len(jobs)), True)
    for slot, terms in sorted(by_slot.items()):
        rows.add(terms, -np.inf, grid.at(slot))
    whole = np.ones(count)
    if fractional:
        whole[[column for columns in held.values() for column in columns]] = 0
    found = optimize.milp(
        -np.array(gains) if objective else np.zeros(count),
        integrality=whole,
        bounds=optimize.Bounds(0, 1),
        constraints=rows.constraint(count),
        options={"time_limit": time_limit_s, "mip_rel_gap": 0.0},
    )
    if found.status not in (_OPTIMAL, _LIMIT):
        return Solved(None, 0.0, 0.0, False, found.status == _INFEASIBLE)
    most = len(jobs) + sum(max(0.0, gain) for gain in gains)
    dual = found.mip_dual_bound if objective else None
    bound = most if dual is None else min(most, len(jobs) - float(dual))
    if found.x is None:
        return Solved(None, 0.0, bound, False, stopped=True)
    earned = len(jobs) + float(np.array(gains) @ found.x)
    plan = None if fractional else SlotPlan(_segments(held, found.x))
    proven = found.status == _OPTIMAL
    return Solved(plan, earned, bound, objective and proven, stopped=not proven)


def _columns(job: SloJob, grid: Grid) -> list[int]:
    """The steps that a job may meet; for a promised job none beyond its promise."""
    last = job.promised
    return [step for step in within(job, grid) if last is None or step <= last]


def _constrain(
    rows: _Rows, job: SloJob, slots: int, x: range, s: range, last: Sequence[int]
) -> None:
    """Add (4) and (5), with `slots` for RL."""
    for number in range(len(s)):
        terms = [(column, 1.0) for column in x[: last[number]]]
        terms += [(column, -float(slots)) for column in s[: number + 1]]
        rows.add(terms, 0.0, 0.0 if number == len(s) - 1 else np.inf)
    rows.add([(column, 1.0) for column in s], 0.0 if job.promised is None else 1.0, 1.0)


def _segments(held: dict[str, list[int]], shares: Sequence[float]) -> dict[str, Segments]:
    """The segments of each job in a solution."""
    made: dict[str, Segments] = {}
    for key, columns in held.items():
        slots = [slot for slot, column in enumerate(columns) if shares[column] > 0.5]
        runs: list[Segment] = []
        for slot in slots:
            if runs and runs[-1].end == slot:
                runs[-1] = Segment(runs[-1].begin, slot + 1)
            else:
                runs.append(Segment(slot, slot + 1))
        if runs:
            made[key] = tuple(runs)
    return made
