"""The reclaim that preempts least, with its proof: what Aryl (7.3) finds by exhaustive search.

Algorithm 1's choice is there first. Where a bound on all choices reaches it, it is the best; otherwise an
integer program looks for a better one (`program`), and when its time is up the better of both is taken.
"""

from __future__ import annotations

from dlq_master.policy.reclaim.demand import Choice, Demand
from dlq_master.policy.reclaim.rules import algorithm_1

TIME_LIMIT_S = 2.0
_TOLERANCE = 1e-6


def exact(demand: Demand, time_limit_s: float = TIME_LIMIT_S) -> Choice:
    """The choice that costs least of those found within the limit, and a bound on all. Without scipy where
    nobody has to be preempted."""
    first = algorithm_1(demand)
    free = demand.free()
    wanted = min(demand.wanted, len(demand.servers)) - len(free)
    if wanted <= 0 or not first.cost:
        return first._replace(bound=first.cost)
    from dlq_master.policy.reclaim.program import Program

    program = Program(demand, set(free), wanted)
    bound = program.relaxed()
    if first.cost <= bound + _TOLERANCE:
        return first._replace(bound=bound)
    found = program.solve(first.cost, time_limit_s)
    bound = max(bound, found.bound)
    servers = (*free, *found.servers)
    if found.servers and (cost := demand.cost(servers)) < first.cost:
        return Choice(servers, cost, bound)
    return first._replace(bound=bound)
