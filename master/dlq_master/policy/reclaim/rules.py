"""The reclaim rules that Aryl compares (section 4, 7.1, Appendix B, Table 12), by their names.

Details that the paper leaves open: `ssf` and `lsf` go by the server fractions of its Table 1 as
they are at first, the smallest or the largest sum first; `static` takes servers in a fixed order,
with any jobs. These three, `random` and `scf` know nothing of flexible workers when they choose.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from random import Random

from dlq_master.model.ids import NodeId
from dlq_master.policy.reclaim.demand import Choice, Demand

_DIGITS = 9  # sums of fractions that are equal differ by less


def algorithm_1(demand: Demand) -> Choice:
    """Aryl, Appendix B: first servers without which every job goes on. Then again and again the one
    with the least preemption cost, the sum over its jobs of 1 / (servers of the job). O(n log n) in
    the places that jobs hold.
    """
    servers = demand.free()[: demand.wanted]
    wanted = demand.wanted - len(servers)
    if wanted == 1:
        servers += _best(demand)
    elif wanted > 1:
        servers += _cheapest(demand, wanted, set(servers))
    return Choice(tuple(servers), demand.cost(servers))


def static(demand: Demand) -> Choice:
    """In the order of the servers."""
    return _first(demand, lambda _server: 0.0)


def smallest_count(demand: Demand) -> Choice:
    """`scf`: the servers with the fewest jobs."""
    jobs = dict.fromkeys(demand.servers, 0.0)
    for tenant in demand.tenants:
        for server in tenant.held:
            jobs[server] += 1.0
    return _first(demand, jobs.__getitem__)


def smallest_fraction(demand: Demand) -> Choice:
    """`ssf`: the smallest sums of server fractions, which are not brought up to date."""
    return _first(demand, fractions(demand).__getitem__)


def largest_fraction(demand: Demand) -> Choice:
    """`lsf`: the largest sums of server fractions."""
    found = fractions(demand)
    return _first(demand, lambda server: -found[server])


def at_random(dice: Random) -> Callable[[Demand], Choice]:
    """`random`: any servers, drawn with these dice."""

    def rule(demand: Demand) -> Choice:
        servers = dice.sample(list(demand.servers), min(demand.wanted, len(demand.servers)))
        return Choice(tuple(servers), demand.cost(servers))

    return rule


def fractions(demand: Demand, *, of_gpus: bool = False) -> dict[NodeId, float]:
    """The third column of Aryl's Table 1, or with `of_gpus` its second. By server it is the sum
    over its jobs of 1 / (servers of the job), or of the share of the job's GPUs.
    """
    found = dict.fromkeys(demand.servers, 0.0)
    for tenant in demand.tenants:
        held = tenant.held
        for server, gpus in held.items():
            if of_gpus:
                found[server] += gpus / sum(held.values())
            else:
                found[server] += 1.0 / (len(held) + tenant.elsewhere)
    return found


def _first(demand: Demand, key: Callable[[NodeId], float]) -> Choice:
    servers = sorted(demand.servers, key=key)[: demand.wanted]
    return Choice(tuple(servers), demand.cost(servers))


def _best(demand: Demand) -> list[NodeId]:
    """The server whose loss preempts least, if it is the only one with base workers that goes."""
    lost: dict[NodeId, float] = {}
    for tenant in demand.tenants:
        for server in tenant.base:
            lost[server] = lost.get(server, 0.0) + tenant.cost
    return [min((s for s in demand.servers if s in lost), key=lost.__getitem__)] if lost else []


def _cheapest(demand: Demand, wanted: int, gone: set[NodeId]) -> list[NodeId]:
    """The loop of Algorithm 1; jobs count for the servers on which their base is."""
    tenants: dict[NodeId, list[int]] = {server: [] for server in demand.servers}
    for at, tenant in enumerate(demand.tenants):
        for server in tenant.base:
            tenants[server].append(at)
    share = [one.cost / (len(one.base) + one.elsewhere) for one in demand.tenants]
    order = {server: at for at, server in enumerate(demand.servers)}
    cost = {at: round(sum(share[one] for one in who), _DIGITS) for at, who in tenants.items()}
    heap = [(cost[server], order[server], server) for server in order if server not in gone]
    heapify(heap)
    chosen: list[NodeId] = []
    fallen: set[int] = set()
    while heap and len(chosen) < wanted:
        at_cost, _, server = heappop(heap)
        if server in gone or at_cost != cost[server]:
            continue  # its cost has fallen since: it stands further ahead
        gone.add(server)
        chosen.append(server)
        for at in tenants[server]:
            if at not in fallen:
                fallen.add(at)
                for other in demand.tenants[at].base:
                    if other not in gone:
                        tenants[other].remove(at)
                        cost[other] = round(sum(share[one] for one in tenants[other]), _DIGITS)
                        heappush(heap, (cost[other], order[other], other))
    return chosen
