"""The machines to rent, once it is known which jobs take over GPUs on the own nodes anyway."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.view import View
from dlq_master.policy.pipeline import at_boundary
from dlq_master.policy.policy import Policy
from dlq_master.policy.priced.situation import Solver
from dlq_master.policy.rent.decide import decide
from dlq_master.policy.rent.line import NOBODY
from dlq_master.policy.rent.market import Change, Market, Provision
from dlq_master.policy.transit.taking import Taking


def settled(
    view: View,
    policy: Policy,
    solver: Solver,
    market_of: Callable[[Mapping[AttemptKey, JobId]], Market],
    draw_of: Callable[[], np.random.Generator],
) -> tuple[Market, list[Change]]:
    """The changes, and the market on which they were decided.

    `market_of`: the market if these who run give way at the end of their terms. That question is
    asked only where machines would be rented if no job did: it takes a walk over all waiting and
    running jobs.
    """
    market = market_of(NOBODY)
    changes = decide(market, solver, draw_of())
    if policy.taking is not Taking.BOUNDARY or not any(isinstance(it, Provision) for it in changes):
        return market, changes
    outranked = at_boundary(view, policy).outranked
    if not outranked:
        return market, changes
    market = market_of(outranked)
    return market, decide(market, solver, draw_of())
