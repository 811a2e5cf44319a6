"""The selection problem as columns and rows, and its linear relaxation.

Each job has one column for each deadline in its reach.

    max   N + sum_c (V_c - 1) s_c           s binary,  sum_{c of i} s_c <= 1 for each job i s.t.
    sum_c G_c max(0, RL_c - max(0, DL_c - t)) s_c <= sum_{k <= t} M_k    for t in {distinct DL}

Between two distinct DL the left side is convex in t, and for a constant capacity the right side is
linear. So the rows at the distinct DL imply all others. If the capacity changes, every t has its
row. A late job earns 1. A guaranteed job has the columns up to its promised step, and must have one
of them.

Rows are added to the relaxation as they are violated. Fewer rows only raise the optimum, so the
value of every round is a proven bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from dlq_master.model.late import np, optimize, sparse
from dlq_master.policy.promise.capacity.leases import (
    Grid,
    SloJob,
    last_slots,
    needed,
    runtime_s,
    width,
    within,
)  # fmt: skip

if TYPE_CHECKING:
    from numpy.typing import NDArray

Ints: TypeAlias = "NDArray[np.int64]"
Floats: TypeAlias = "NDArray[np.float64]"


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The columns and rows.

    By column: `job` and `step` (numbers), `gain` = V - 1, and `row`, its demand on each prefix.
    `columns[i]`: the columns of job i, the best reward first. By prefix: `room`, its capacity, and
    `prefix`, its slots. `must`: the numbers of guaranteed jobs with a column.
    """

    jobs: Sequence[SloJob]
    job: Ints
    step: Ints
    gain: Floats
    row: Ints
    room: Ints
    prefix: Ints
    columns: list[list[int]]
    must: frozenset[int]

    def taken(self, picks: Ints) -> Ints:
        """W of a choice. `picks`: the column of each job, or -1."""
        made: Ints = self.row[picks[picks >= 0]].sum(axis=0)
        return made


def options(jobs: Sequence[SloJob], grid: Grid) -> ModelOptions:
    """The columns and rows of these jobs, without steps that earn no more than being late."""
    job: list[int] = []
    step: list[int] = []
    gain: list[float] = []
    wide: list[int] = []
    slots: list[int] = []
    last: list[int] = []
    columns: list[list[int]] = []
    for number, made in enumerate(jobs):
        reach = [at for at in within(made, grid) if made.steps[at].reward > 1]
        reach = [at for at in reach if made.promised is None or at <= made.promised]
        columns.append([*range(len(job), len(job) + len(reach))])
        for at in reach:
            job.append(number)
            step.append(at)
            gain.append(made.steps[at].reward - 1)
            wide.append(width(made, grid))
            slots.append(needed(runtime_s(made), grid.term_s))
            last.append(last_slots(made, at, grid))
    prefixes = _prefixes(last, grid)
    upto = np.array(grid.upto(max(last, default=0)), dtype=np.int64)
    outside = np.maximum(0, np.array(last, dtype=np.int64)[:, None] - prefixes)
    inside = np.maximum(0, np.array(slots, dtype=np.int64)[:, None] - outside)
    return ModelOptions(
        jobs=jobs,
        job=np.array(job, dtype=np.int64),
        step=np.array(step, dtype=np.int64),
        gain=np.array(gain, dtype=np.float64),
        row=np.array(wide, dtype=np.int64)[:, None] * inside,
        room=upto[prefixes],
        prefix=prefixes,
        columns=columns,
        must=frozenset(
            i for i, made in enumerate(jobs) if made.promised is not None and columns[i]
        ),
    )


def _prefixes(last: Sequence[int], grid: Grid) -> Ints:
    """The prefixes that have a row."""
    if len(set(grid.capacity)) == 1:
        return np.array(sorted(set(last)), dtype=np.int64)
    return np.arange(1, max(last, default=0) + 1, dtype=np.int64)


MOST_ROUNDS = 12
_NEW_ROWS = 12  # the most rows that a round adds
_SLACK = 1e-4  # of the capacity: smaller violations hardly raise the bound


@dataclass(frozen=True, slots=True)
class Relaxed:
    """The optimum of the relaxation. `share` of each column; `bound` on the total reward; `price`
    of each prefix.

    `regret` of each column: the fall of the bound if it had to be chosen; negative: if it must not
    be. `out` of each job: the fall of the bound if it had no column.
    """

    share: Floats
    bound: float
    price: Floats
    regret: Floats
    out: Floats


def relax(made: ModelOptions, out_of_time: Callable[[], bool]) -> Relaxed | None:
    """Solve the relaxation; None: the guaranteed jobs do not fit, or the solver gave up."""
    count, rows = len(made.gain), len(made.room)
    if not count:
        return Relaxed(
            np.zeros(0),
            float(len(made.jobs)),
            np.zeros(rows),
            np.zeros(0),
            np.zeros(len(made.jobs)),
        )
    one = sparse.csr_array(
        (np.ones(count), (made.job, np.arange(count))), shape=(len(made.jobs), count)
    )
    must = np.array(sorted(made.must), dtype=np.int64)
    free = np.array([i for i in range(len(made.jobs)) if i not in made.must], dtype=np.int64)
    active: list[int] = _worst(made, _first_wishes(made), [])
    found = None
    for _ in range(MOST_ROUNDS):
        # In units of the capacity, so that coefficients stay small. While all nodes are reserved
        # the capacity is 0.
        room = made.room[active].astype(float)
        scale = np.maximum(1.0, room)
        table = sparse.csr_array(made.row[:, active].T / scale[:, None])
        solved = optimize.linprog(
            -made.gain,
            A_ub=sparse.vstack([one[free], table]),
            b_ub=np.concatenate([np.ones(len(free)), room / scale]),
            A_eq=one[must] if len(must) else None,
            b_eq=np.ones(len(must)) if len(must) else None,
            bounds=(0, 1),
            method="highs-ds",
            options={"presolve": False},  # it costs more than it saves on so few rows
        )
        if solved.status != 0:
            return found
        price = np.zeros(rows)
        price[active] = -solved.ineqlin.marginals[len(free) :] / scale
        of_job = np.zeros(len(made.jobs))
        of_job[free] = -solved.ineqlin.marginals[: len(free)]
        if len(must):
            of_job[must] = -solved.eqlin.marginals
        regret = of_job[made.job] + made.row @ price - made.gain
        found = Relaxed(solved.x, len(made.jobs) - float(solved.fun), price, regret, of_job)
        more = _worst(made, made.row.T @ solved.x, active)
        if not more or out_of_time():
            break
        active = sorted({*active, *more})
    return found


def _first_wishes(made: ModelOptions) -> Ints:
    """W if every job had its best deadline."""
    firsts = [columns[0] for columns in made.columns if columns]
    wished: Ints = made.row[firsts].sum(axis=0)
    return wished


def _worst(made: ModelOptions, taken: Ints | Floats, active: list[int]) -> list[int]:
    """The prefixes that are too full, and more so than both neighbours, the worst first."""
    over = (taken - made.room) / np.maximum(1, made.room)
    padded = np.concatenate([[-np.inf], over, [-np.inf]])
    peak = (over > _SLACK) & (over >= padded[:-2]) & (over >= padded[2:])
    found = [int(at) for at in np.flatnonzero(peak) if int(at) not in active]
    return sorted(found, key=lambda at: -over[at])[:_NEW_ROWS]
