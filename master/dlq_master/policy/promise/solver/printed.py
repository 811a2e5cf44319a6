"""The lease MILP of Chronus as it is meant (section 3.3.4), for comparison and for small clusters.

x_ki: job i holds slot k; s_pi: it makes deadline p. Corrections: (3) and (6) sum GPUs, not run
times; (4) is bilinear as printed, and linear as

    sum_{k <= DL_P} x_ki = RL_i sum_p s_pi,    sum_{k <= DL_p} x_ki >= RL_i sum_{q <= p} s_qi  for p
    < P;

(5) is <= 1 and a job that is late is worth 1, or the model has no solution after any loss of
capacity. Going on after a pause costs nothing in this model beyond the first resume: `completion_s`
is the judge.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from dlq_master.policy.promise.slots.plan import SlotPlan

_OPTIMAL, _LIMIT = 0, 1


class Solved(NamedTuple):
    """The best plan found (None: none in time, or promises that cannot be kept), its reward by the
    model, and the bound that was proven; `optimal` if the two are the same."""

    plan: SlotPlan | None
    objective: float
    bound: float
    optimal: bool


class _Rows:
    """Rows of a sparse matrix, with their limits."""

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


def time_indexed(
    jobs: Sequence[SloJob], grid: Grid, time_limit_s: float, *, fractional: bool = False
) -> Solved:
    """Solve it. `fractional`: x in [0, 1], which the prefix-capacity model equals where capacity
    never falls; then there is no plan."""
    rows, gains = _Rows(), []
    by_slot: dict[int, list[tuple[int, float]]] = {}
    held: dict[str, list[int]] = {}
    count = 0
    for job in jobs:
        steps = within(job, grid)
        if job.promised is not None:
            steps = [step for step in steps if step <= job.promised]
        if not steps:
            continue
        slots = last_slots(job, steps[-1], grid)
        x, s = range(count, count + slots), range(count + slots, count + slots + len(steps))
        count += slots + len(steps)
        gains += [0.0] * slots + [job.steps[step].reward - 1 for step in steps]
        held[job.key] = list(x)
        _constrain(rows, job, grid, x, s, [last_slots(job, step, grid) for step in steps])
        for slot, column in enumerate(x):
            by_slot.setdefault(slot, []).append((column, float(width(job, grid))))
    if not count:
        return Solved(SlotPlan(), float(len(jobs)), float(len(jobs)), True)
    for slot, terms in sorted(by_slot.items()):
        rows.add(terms, -np.inf, grid.at(slot))
    whole = np.ones(count)
    if fractional:
        whole[[column for columns in held.values() for column in columns]] = 0
    found = optimize.milp(
        -np.array(gains),
        integrality=whole,
        bounds=optimize.Bounds(0, 1),
        constraints=rows.constraint(count),
        options={"time_limit": time_limit_s, "mip_rel_gap": 0.0},
    )
    if found.status not in (_OPTIMAL, _LIMIT):
        return Solved(None, 0.0, 0.0, False)
    bound = len(jobs) - float(found.mip_dual_bound)
    if found.x is None:
        return Solved(None, 0.0, bound, False)
    objective = len(jobs) - float(found.fun)
    plan = None if fractional else SlotPlan(_segments(held, found.x))
    return Solved(plan, objective, bound, found.status == _OPTIMAL)


def _constrain(
    rows: _Rows, job: SloJob, grid: Grid, x: range, s: range, last: Sequence[int]
) -> None:
    slots = needed(runtime_s(job), grid.term_s)
    for number in range(len(s)):
        terms = [(column, 1.0) for column in x[: last[number]]]
        terms += [(column, -float(slots)) for column in s[: number + 1]]
        rows.add(terms, 0.0, 0.0 if number == len(s) - 1 else np.inf)
    rows.add([(column, 1.0) for column in s], 0.0 if job.promised is None else 1.0, 1.0)


def _segments(held: dict[str, list[int]], shares: Sequence[float]) -> dict[str, Segments]:
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
