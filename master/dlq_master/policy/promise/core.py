"""The columns that the bound leaves open, solved as they are: reduced-cost fixing and a small MIP.

A column whose reduced cost exceeds the distance between the bound and a choice that is known cannot be
otherwise than in the relaxation, in any choice that is better.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from dlq_master.policy.promise.relax import Relaxed
from dlq_master.policy.promise.rounding import Choice

_OPTIMAL, _LIMIT = 0, 1


def improve(choice: Choice, relaxed: Relaxed, time_limit_s: float) -> float:
    """Make `choice` the better one if the solver finds it within the limit; returns the bound.

    With a time limit the answer depends on the machine: what has to be reproduced leaves this step out.
    """
    made = choice.made
    least = len(made.jobs) + choice.gain
    distance = relaxed.bound - least + 1e-6
    low = (relaxed.regret < -distance).astype(float)
    high = (relaxed.regret <= distance).astype(float)
    count = len(made.gain)
    one = csr_array((np.ones(count), (made.job, np.arange(count))), shape=(len(made.jobs), count))
    must = np.zeros(len(made.jobs))
    must[sorted(made.must)] = 1.0
    scale = np.maximum(1, made.room).astype(float)
    found = milp(
        -made.gain,
        integrality=np.ones(count),
        bounds=Bounds(low, high),
        constraints=[
            LinearConstraint(one, must, np.ones(len(made.jobs))),
            LinearConstraint(csr_array(made.row.T / scale[:, None]), -np.inf, made.room / scale),
        ],
        options={"time_limit": time_limit_s, "mip_rel_gap": 0.0},
    )
    if found.status not in (_OPTIMAL, _LIMIT) or found.x is None:
        return relaxed.bound
    _adopt(choice, found.x)
    proven = len(made.jobs) - float(found.mip_dual_bound)
    # The fixed columns are right only for choices better than the known one.
    return min(relaxed.bound, max(proven, least))


def _adopt(choice: Choice, shares: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
    made, other = choice.made, choice.copy()
    for job, columns in enumerate(made.columns):
        held = [column for column in columns if shares[column] > 0.5]
        other.set(job, held[0] if held else -1)
    if (other.left >= 0).all() and other.gain > choice.gain:
        choice.picks, choice.left = other.picks, other.left
