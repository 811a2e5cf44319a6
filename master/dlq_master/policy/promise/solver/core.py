"""The columns that the bound leaves open, solved exactly: reduced-cost fixing and a small MIP.

Suppose that a column's reduced cost exceeds the distance from the known choice to the bound. Then
every better choice gives it the value of the relaxation. Of the rows only those remain that open
columns could fill.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from dlq_master.model.late import np, optimize, sparse
from dlq_master.policy.promise.solver.relax import Floats, Ints, Relaxed
from dlq_master.policy.promise.solver.rounding import DeadlineChoice

if TYPE_CHECKING:
    from numpy.typing import NDArray

SMALL = 6000  # columns by rows: the size that a MIP solves in about the time of all the rest
MOST_NODES = 50  # of its search: as far as it goes without a time limit
_OPTIMAL, _LIMIT, _INFEASIBLE = 0, 1, 2
_FEWER_NODES = 4  # scipy has no status of its own for the limit on nodes


class _Open(NamedTuple):
    """The open part of the problem.

    `fixed`: columns that are chosen. `columns`: open columns, and `owner` the place of each one's
    job in `jobs`. `must`: whether a job needs a column. `rows`: prefixes, and their `room` beside
    the fixed columns.
    """

    fixed: Ints
    columns: Ints
    owner: Ints
    jobs: Ints
    must: Floats
    rows: Ints
    room: Ints


def improve(choice: DeadlineChoice, relaxed: Relaxed, time_limit_s: float) -> float:
    """Replace `choice` by a better one if the solver finds it; return the bound.

    With `time_limit_s` above 0 the answer depends on the host. Without a limit only small problems
    are solved, within a number of nodes, so that the answer can be reproduced.
    """
    made = choice.made
    least = len(made.jobs) + choice.gain
    left = _open(choice, relaxed)
    if not len(left.columns):
        _adopt(choice, left, np.zeros(0))
        return min(relaxed.bound, len(made.jobs) + choice.gain)
    if time_limit_s <= 0 and len(left.columns) * len(left.rows) > SMALL:
        return relaxed.bound
    found = _solved(
        made.gain[left.columns], made.row[left.columns][:, left.rows], left, time_limit_s
    )
    if found.status == _INFEASIBLE:
        return min(relaxed.bound, least)
    if found.status not in (_OPTIMAL, _LIMIT, _FEWER_NODES) or found.x is None:
        return relaxed.bound
    _adopt(choice, left, found.x)
    proven = len(made.jobs) + float(made.gain[left.fixed].sum()) - float(found.mip_dual_bound)
    # The fixed columns are right only for choices better than the known one.
    return min(relaxed.bound, max(proven, least))


def _open(choice: DeadlineChoice, relaxed: Relaxed) -> _Open:
    """The part of the problem that a better choice could change."""
    made = choice.made
    whole = bool((made.gain == np.rint(made.gain)).all())
    # A better choice is better by 1 if all rewards are whole.
    distance = relaxed.bound - len(made.jobs) - choice.gain - whole + 1e-6
    near = relaxed.regret <= distance
    stays = relaxed.out > distance
    stays[sorted(made.must)] = True
    single = stays & (np.bincount(made.job[near], minlength=len(made.jobs)) == 1)
    fixed = np.flatnonzero(near & single[made.job])
    columns = np.flatnonzero(near & ~single[made.job])
    jobs, first, owner = np.unique(made.job[columns], return_index=True, return_inverse=True)
    room = made.room - made.row[fixed].sum(axis=0)
    most = np.zeros_like(room)
    if len(columns):
        most = np.maximum.reduceat(made.row[columns], first, axis=0).sum(axis=0)
    rows = np.flatnonzero(most > room)
    return _Open(fixed, columns, owner, jobs, stays[jobs].astype(float), rows, room[rows])


def _solved(gain: Floats, row: Ints, left: _Open, time_limit_s: float) -> Any:
    """The answer of scipy's MIP solver for the open part."""
    count = len(gain)
    one = sparse.csr_array(
        (np.ones(count), (left.owner, np.arange(count))), shape=(len(left.jobs), count)
    )
    scale = np.maximum(1, left.room).astype(float)
    limit = {"time_limit": time_limit_s} if time_limit_s > 0 else {"node_limit": MOST_NODES}
    constraints = [optimize.LinearConstraint(one, left.must, np.ones(len(left.jobs)))]
    if len(left.rows):
        table = sparse.csr_array(row.T / scale[:, None])
        constraints.append(optimize.LinearConstraint(table, -np.inf, left.room / scale))
    return optimize.milp(
        -gain,
        integrality=np.ones(count),
        bounds=optimize.Bounds(0, 1),
        constraints=constraints,
        options={"mip_rel_gap": 0.0, **limit},
    )


def _adopt(choice: DeadlineChoice, left: _Open, shares: NDArray[np.float64]) -> None:
    """Replace the choice by this one if it fits and is better."""
    made, other = choice.made, choice.copy()
    other.picks[:] = -1
    taken = np.concatenate([left.fixed, left.columns[shares > 0.5]])
    other.picks[made.job[taken]] = taken
    other.left = made.room - made.taken(other.picks)
    if (other.left >= 0).all() and other.gain > choice.gain:
        choice.picks, choice.left = other.picks, other.left
