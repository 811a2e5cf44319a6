"""A reclaim as a value: the jobs on the lent servers, the wanted number of servers, and the cost of
a choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from math import inf
from typing import NamedTuple

from dlq_master.model.ids import JobId, NodeId


class Tenant(NamedTuple):
    """A job with workers on lent servers: the GPUs that it holds, by server.

    `base`: servers without which it does not run; taking one of them preempts the job. `flexible`:
    servers that it can give away. `spare`: where any of its GPUs will do as its base, so many of
    its GPUs here it can give away, in any choice. All flexible ones are within that. None: exactly
    the flexible ones. `elsewhere`: on how many servers that are not lent it is besides, and
    `beside` with how many GPUs. `cost`: the weight of its preemption; 1 counts jobs. `lost_gpu_s`:
    GPU-seconds that its preemption takes: to save and to resume, or the work of one that cannot
    save.
    """

    job_id: JobId
    base: Mapping[NodeId, int]
    flexible: Mapping[NodeId, int] = {}
    elsewhere: int = 0
    cost: float = 1.0
    beside: int = 0
    lost_gpu_s: float = 0.0
    spare: int | None = None

    @property
    def held(self) -> dict[NodeId, int]:
        """All that it has on lent servers."""
        held = dict(self.base)
        for server, gpus in self.flexible.items():
            held[server] = held.get(server, 0) + gpus
        return held

    def falls(self, gone: Set[NodeId]) -> bool:
        """Whether it is preempted if these servers go."""
        if gone.isdisjoint(self.base):
            return False
        if self.spare is None:
            return True
        return sum(gpus for server, gpus in self.held.items() if server in gone) > self.spare

    @property
    def at_risk(self) -> set[NodeId]:
        """Servers that count when it is said whether it falls; none: nothing that goes takes it
        along.
        """
        if self.spare is None:
            return set(self.base)
        held = self.held
        return {s for s, gpus in held.items() if gpus} if sum(held.values()) > self.spare else set()

    @property
    def pinned(self) -> set[NodeId]:
        """Servers each of which takes it along, whichever others go."""
        if self.spare is None:
            return set(self.base)
        return {server for server, gpus in self.held.items() if gpus > self.spare}


class Demand(NamedTuple):
    """`wanted` of these lent servers are asked back. `servers`: GPUs of each, those that are taken
    first among equals before the others."""

    servers: Mapping[NodeId, int]
    tenants: Sequence[Tenant]
    wanted: int

    def free(self) -> list[NodeId]:
        """Servers on which nobody is preempted: idle ones, then those that cost the fewest flexible
        GPUs.
        """
        flexible = dict.fromkeys(self.servers, 0)
        needed: set[NodeId] = set()
        for tenant in self.tenants:
            needed.update(tenant.base)
            for server, gpus in tenant.flexible.items():
                flexible[server] += gpus
        return sorted((s for s in self.servers if s not in needed), key=flexible.__getitem__)

    def harmless(self) -> list[NodeId]:
        """Of the free servers those that nobody misses, whichever others go."""
        missed = {server for one in self.tenants for server in one.at_risk}
        return [server for server in self.free() if server not in missed]

    def cost(self, chosen: Iterable[NodeId]) -> float:
        """The number of preemptions, if these servers go."""
        return sum(one.cost for one in self.hit(chosen))

    def lost_gpu_s(self, chosen: Iterable[NodeId]) -> float:
        """The cost of the preemptions, if these servers go."""
        return sum(one.lost_gpu_s for one in self.hit(chosen))

    def hit(self, chosen: Iterable[NodeId]) -> list[Tenant]:
        """The jobs preempted then."""
        gone = set(chosen)
        return [one for one in self.tenants if one.falls(gone)]

    def by_loss(self) -> Demand:
        """The same, with preemptions that count what they take."""
        tenants = [one._replace(cost=one.lost_gpu_s) for one in self.tenants]
        return self._replace(tenants=tenants)


class Choice(NamedTuple):
    """Servers to take back, in the order in which they were chosen. `bound`: no choice costs less
    (-inf: nobody has looked)."""

    servers: tuple[NodeId, ...]
    cost: float
    bound: float = -inf

    @property
    def proven(self) -> bool:
        """Nothing costs less."""
        return self.cost <= self.bound + 1e-6


class Toll(NamedTuple):
    """The effects of a choice (Aryl 7.2, 7.3).

    `preempted`: jobs. `shrunk`: jobs that go on with fewer GPUs. `collateral`: GPUs that are
    vacated on servers that stay, over the GPUs that were asked back. `flexible`: the share of the
    servers asked back on which there were flexible workers and no other ones; `idle`: on which
    there was nobody.
    """

    preempted: int
    shrunk: int
    collateral: float
    flexible: float
    idle: float


def toll(demand: Demand, servers: Sequence[NodeId]) -> Toll:
    """The effects of taking these servers back."""
    gone = set(servers)
    preempted = demand.hit(gone)
    hit = {one.job_id for one in preempted}
    shrunk = [
        one for one in demand.tenants if one.job_id not in hit and not gone.isdisjoint(one.held)
    ]
    beside = sum(one.beside for one in preempted) + sum(
        gpus for one in preempted for server, gpus in one.held.items() if server not in gone
    )
    based = {server for one in demand.tenants for server in one.base}
    occupied = based | {server for one in demand.tenants for server in one.flexible}
    asked = sum(demand.servers[server] for server in gone)
    count = len(gone)
    return Toll(
        preempted=len(preempted),
        shrunk=len(shrunk),
        collateral=beside / asked if asked else 0.0,
        flexible=len((occupied - based) & gone) / count if count else 0.0,
        idle=len(gone - occupied) / count if count else 0.0,
    )
