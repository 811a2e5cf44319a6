"""The linear relaxation of the prefix-capacity model, with the rows that matter added as they are
violated.

Leaving rows out only raises the optimum, so the value of every round is a proven bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, vstack

from dlq_master.policy.promise.solver.options import Floats, Ints, ModelOptions

MOST_ROUNDS = 12
_NEW_ROWS = 12  # a round adds at most so many
_SLACK = 1e-4  # of the capacity: the rest of smaller violations raises the bound by as little


@dataclass(frozen=True, slots=True)
class Relaxed:
    """`share` of each column; `bound` on the total reward; `price` of each prefix; `regret` of each
    column: the fall of the bound if it had to be chosen (negative: if it must not be). `out` of
    each job: the fall if it had to stay out.
    """

    share: Floats
    bound: float
    price: Floats
    regret: Floats
    out: Floats


def relax(made: ModelOptions, out_of_time: Callable[[], bool]) -> Relaxed | None:
    """The optimum in fractions; None if the guaranteed jobs do not fit, or the solver gave up."""
    count, rows = len(made.gain), len(made.room)
    if not count:
        return Relaxed(
            np.zeros(0),
            float(len(made.jobs)),
            np.zeros(rows),
            np.zeros(0),
            np.zeros(len(made.jobs)),
        )
    one = csr_array((np.ones(count), (made.job, np.arange(count))), shape=(len(made.jobs), count))
    must = np.array(sorted(made.must), dtype=np.int64)
    free = np.array([i for i in range(len(made.jobs)) if i not in made.must], dtype=np.int64)
    active: list[int] = _worst(made, _first_wishes(made), [])
    found = None
    for _ in range(MOST_ROUNDS):
        # In units of the capacity: no coefficient is larger than a few. There is none while all
        # nodes are reserved.
        room = made.room[active].astype(float)
        scale = np.maximum(1.0, room)
        table = csr_array(made.row[:, active].T / scale[:, None])
        solved = linprog(
            -made.gain,
            A_ub=vstack([one[free], table]),
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
    """The prefixes that are overfull and more so than both neighbours, the worst first."""
    over = (taken - made.room) / np.maximum(1, made.room)
    padded = np.concatenate([[-np.inf], over, [-np.inf]])
    peak = (over > _SLACK) & (over >= padded[:-2]) & (over >= padded[2:])
    found = [int(at) for at in np.flatnonzero(peak) if int(at) not in active]
    return sorted(found, key=lambda at: -over[at])[:_NEW_ROWS]
