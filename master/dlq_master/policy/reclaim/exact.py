"""The reclaim with the fewest preemptions, with its proof. Aryl (7.3) finds it by exhaustive
search.

Algorithm 1's choice is there first. Where a bound on all choices reaches it, it is the best.
Otherwise it is made again with costs that lean on the relaxation, and an integer program looks for
a better one (`program`). When its time is up the best of all is taken. Of the choices that cost no
more a second program takes the one that loses the fewest GPU-seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlq_master.model.ids import NodeId
from dlq_master.policy.reclaim.demand import Choice, Demand
from dlq_master.policy.reclaim.rules import algorithm_1

if TYPE_CHECKING:
    from dlq_master.policy.reclaim.program import ReclaimProgram

TIME_LIMIT_S = 2.0
TIE_LIMIT_S = 0.2
_TOLERANCE = 1e-6


def exact(demand: Demand, time_limit_s: float = TIME_LIMIT_S) -> Choice:
    """The choice that costs least of those found within the limit, and a bound on all. Without
    scipy where nobody has to be preempted."""
    first = algorithm_1(demand)
    free = demand.harmless()
    wanted = min(demand.wanted, len(demand.servers)) - len(free)
    if wanted <= 0 or not first.cost:
        return first._replace(bound=first.cost)
    from dlq_master.policy.reclaim.program import ReclaimProgram

    program = ReclaimProgram(demand, set(free), wanted)
    best = _cheapest(program, first, free, demand, time_limit_s)
    lost_gpu_s = demand.lost_gpu_s(best.servers)
    if lost_gpu_s <= 0:
        return best
    found = (*free, *program.spare(best.cost, TIE_LIMIT_S))
    if (
        len(found) == len(best.servers)
        and demand.cost(found) <= best.cost + _TOLERANCE
        and demand.lost_gpu_s(found) < lost_gpu_s
    ):
        return best._replace(servers=found)
    return best


def _cheapest(
    program: ReclaimProgram, first: Choice, free: list[NodeId], demand: Demand, time_limit_s: float
) -> Choice:
    """The best of Algorithm 1, of what it finds beside the relaxation, and of the program."""
    bound = program.relaxed()
    tried = [first.servers]
    if first.cost > bound + _TOLERANCE:
        tried.append(algorithm_1(program.leaning()).servers)
    if min(map(demand.cost, tried)) > bound + _TOLERANCE:
        # Cuts by the result of Algorithm 1 would only make it harder to find any answer in time.
        found = program.solve(first.cost, time_limit_s)
        bound = max(bound, found.bound)
        if found.servers:
            tried.append((*free, *found.servers))
    best = min(tried, key=demand.cost)
    return Choice(best, demand.cost(best), bound)


def least_lost(demand: Demand, time_limit_s: float = TIME_LIMIT_S) -> Choice:
    """The choice that loses the fewest GPU-seconds, however many jobs these are of."""
    return exact(demand.by_loss(), time_limit_s)
