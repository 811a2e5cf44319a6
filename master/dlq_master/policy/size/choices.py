"""The rules of the size stage by name."""

from __future__ import annotations

from collections.abc import Sequence

from dlq_master.model.ids import JobId
from dlq_master.policy.size import fill, knapsack, marginal_gain, opportunistic
from dlq_master.policy.size.sizing import Candidate, Sizing


def _exactly(candidates: Sequence[Candidate], left: int, short: bool) -> dict[JobId, int]:
    from dlq_master.policy.size import knapsack_exact

    return knapsack_exact.grow(candidates, left, short)


def _none(_candidates: Sequence[Candidate], _left: int, _short: bool) -> dict[JobId, int]:
    return {}


AFS = Sizing("afs", marginal_gain.grow, priced=True)
GROW_SHRINK = Sizing("grow-shrink", opportunistic.grow, own_nodes=True)
KNAPSACK = Sizing("knapsack", knapsack.grow, priced=True)
KNAPSACK_EXACT = Sizing("knapsack-exact", _exactly, priced=True)
LEAST_WORK = Sizing("least-work", fill.least_work, priced=True)
ROLLOUT = Sizing("rollout", fill.rollout, priced=True)
OF_ORDER = Sizing("of-order", _none, at_start=True)  # of policies that choose sizes themselves
SIZINGS = {
    sizing.name: sizing
    for sizing in (KNAPSACK, KNAPSACK_EXACT, LEAST_WORK, ROLLOUT, AFS, GROW_SHRINK)
}
