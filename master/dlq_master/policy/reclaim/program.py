"""The reclaim as an integer program, and its relaxation.

Jobs on one server alone are a cost of that server, and jobs on the same servers are one. Servers
that cost the same and have as much of the same wide jobs are one class, of which a number goes:

    min  sum a_k u_k + sum c_j y_j (1)  n_k y_j >= u_k               for every wide job j that falls
    with a server of class k, which has n_k servers (2)  (h_j - s_j) y_j >= sum h_jk u_k - s_j
    for one that has h_j GPUs, h_jk on a server of class k, and can give
                                      away any s_j of them
    (3)  sum_k u_k = N
    (4)  the costs are less than what is there already

u and y whole. Servers on which nobody can fall are not in it: they cost nothing and have gone.
"""

from __future__ import annotations

from collections import defaultdict
from math import ceil, inf
from typing import TYPE_CHECKING, NamedTuple

from dlq_master.model.ids import NodeId
from dlq_master.model.late import np, optimize, sparse
from dlq_master.policy.reclaim.demand import Demand, Tenant

if TYPE_CHECKING:
    from numpy.typing import NDArray

TREE_NODES = 20_000
_TOLERANCE = 1e-6
_LEANS = 0.99  # the rest keeps costs above nothing
_OPTIMAL, _INFEASIBLE = 0, 2


class FoundProgram(NamedTuple):
    """The servers of a better choice (none: there is none, or it was not found in time), and what
    no choice costs less than."""

    servers: tuple[NodeId, ...]
    bound: float


class _Sum(NamedTuple):
    """Over jobs that fall together."""

    cost: float = 0.0
    lost_gpu_s: float = 0.0

    def plus(self, tenant: Tenant) -> _Sum:
        return _Sum(self.cost + tenant.cost, self.lost_gpu_s + tenant.lost_gpu_s)


class _Wide(NamedTuple):
    """Jobs that fall when more than `spare` of their GPUs goes. A job for which any server is too
    many holds 1 on each and has none to spare.
    """

    held: tuple[tuple[NodeId, int], ...]
    spare: int = 0


class _Class(NamedTuple):
    """Servers with these wide jobs, by number and with so much of each, and of their own so much
    cost, and loss in GPU-seconds."""

    wide: tuple[tuple[int, int], ...]
    alone: float
    alone_gpu_s: float


class ReclaimProgram:
    """Columns: the classes' u, then the wide jobs' y."""

    def __init__(self, demand: Demand, free: set[NodeId], wanted: int) -> None:
        self._wanted = wanted
        self._whole = all(float(tenant.cost).is_integer() for tenant in demand.tenants)
        wide: dict[_Wide, _Sum] = defaultdict(_Sum)
        alone: dict[NodeId, _Sum] = defaultdict(_Sum)
        for tenant in demand.tenants:
            one = _wide(tenant)
            if len(one.held) == 1:
                ((server, _),) = one.held
                alone[server] = alone[server].plus(tenant)
            elif one.held:
                wide[one] = wide[one].plus(tenant)
        on: dict[NodeId, list[tuple[int, int]]] = defaultdict(list)
        for number, one in enumerate(wide):
            for server, gpus in one.held:
                on[server].append((number, gpus))
        self._demand, self._wide = demand, tuple(wide)
        self._falls = np.zeros(len(wide))
        self._classes: dict[_Class, list[NodeId]] = defaultdict(list)
        for server in demand.servers:
            if server not in free:
                self._classes[_Class(tuple(on[server]), *alone[server])].append(server)
        self._sizes = [float(len(servers)) for servers in self._classes.values()]
        sums = [*(_Sum(each.alone, each.alone_gpu_s) for each in self._classes), *wide.values()]
        self._costs = np.array([one.cost for one in sums])
        self._lost = np.array([one.lost_gpu_s for one in sums])
        self._rows = self._laid_out()

    def relaxed(self) -> float:
        """The cost of the relaxation; no choice costs less."""
        links, least, count = self._rows
        there = links.shape[0] > 0
        found = optimize.linprog(
            self._costs,
            A_ub=-links if there else None,
            b_ub=-least if there else None,
            A_eq=count,
            b_eq=[self._wanted],
            bounds=np.column_stack([np.zeros(len(self._costs)), self._most()]),
            method="highs",
        )
        if found.status != _OPTIMAL:
            return -inf
        self._falls = found.x[len(self._sizes) :]
        return self._raised(float(found.fun))

    def leaning(self) -> Demand:
        """The demand, with wide jobs that cost the less the more the relaxation lets them fall. A
        rule that takes the cheapest then comes close to it.
        """
        falls = dict(zip(self._wide, self._falls.tolist(), strict=True))
        return self._demand._replace(
            tenants=[
                one._replace(cost=one.cost * (1.0 - _LEANS * falls.get(_wide(one), 0.0)))
                for one in self._demand.tenants
            ]
        )

    def solve(self, known: float, time_limit_s: float) -> FoundProgram:
        """A choice that costs less than what is known, if there is one."""
        less = known - 1.0 if self._whole else known
        found = self._solved(self._costs, less, time_limit_s)
        if found.status == _INFEASIBLE:
            return FoundProgram((), known)
        bound = -inf if found.mip_dual_bound is None else self._raised(float(found.mip_dual_bound))
        if found.x is None:
            return FoundProgram((), min(bound, known))
        return FoundProgram(self._taken(found.x), bound)

    def spare(self, cost: float, time_limit_s: float) -> tuple[NodeId, ...]:
        """Of the choices that cost no more the one that loses the fewest GPU-seconds; none: not
        found in time.
        """
        scale = max(float(self._lost.max(initial=0.0)), 1.0)  # so that tolerances mean the same
        found = self._solved(self._lost / scale, cost, time_limit_s)
        return () if found.x is None else self._taken(found.x)

    def _solved(
        self, objective: NDArray[np.float64], most: float, time_limit_s: float
    ) -> optimize.OptimizeResult:
        """The least of the objective among choices that cost at most so much."""
        links, least, count = self._rows
        rows = sparse.csr_array(
            sparse.vstack([links, count, sparse.csr_array(self._costs.reshape(1, -1))])
        )
        low = np.array([*least, self._wanted, -np.inf])
        high = np.array([*[np.inf] * links.shape[0], self._wanted, most + _TOLERANCE])
        return optimize.milp(
            objective,
            integrality=np.ones(len(objective)),
            bounds=optimize.Bounds(0.0, self._most()),
            constraints=optimize.LinearConstraint(rows, low, high),
            options={
                "time_limit": time_limit_s,
                "node_limit": TREE_NODES,
                "mip_rel_gap": _TOLERANCE / 10,
            },
        )

    def _taken(self, found: NDArray[np.float64]) -> tuple[NodeId, ...]:
        counts = np.rint(found[: len(self._sizes)]).astype(int)
        return tuple(
            server
            for servers, count in zip(self._classes.values(), counts, strict=True)
            for server in servers[:count]
        )

    def _most(self) -> NDArray[np.float64]:
        return np.array([*self._sizes, *[1.0] * (len(self._costs) - len(self._sizes))])

    def _raised(self, bound: float) -> float:
        """Whole costs make a whole sum."""
        return float(ceil(bound - _TOLERANCE)) if self._whole else bound

    def _laid_out(self) -> tuple[sparse.csr_array, NDArray[np.float64], sparse.csr_array]:
        """(1) and (2), with what each row is at least; (3)"""
        classes, width = len(self._sizes), len(self._costs)
        entries: list[tuple[int, int, float]] = []  # row, column, weight
        least: list[float] = []
        shares: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for u, each in enumerate(self._classes):
            for y, gpus in each.wide:
                if gpus > self._wide[y].spare:
                    entries += [(len(least), classes + y, self._sizes[u]), (len(least), u, -1.0)]
                    least.append(0.0)
                shares[y].append((u, gpus))
        for y, some in shares.items():
            held, spare = self._wide[y]
            if spare:
                total = sum(gpus for _, gpus in held)
                entries.append((len(least), classes + y, float(total - spare)))
                entries += [(len(least), u, -float(gpus)) for u, gpus in some]
                least.append(-float(spare))
        rows, columns, weights = zip(*entries, strict=True) if entries else ((), (), ())
        return (
            sparse.csr_array((weights, (rows, columns)), (len(least), width)),
            np.array(least),
            sparse.csr_array(([1.0] * classes, ([0] * classes, range(classes))), (1, width)),
        )


def _wide(tenant: Tenant) -> _Wide:
    """Its threshold; with nothing held it cannot fall."""
    if not tenant.at_risk:
        return _Wide(())
    pinned = tenant.pinned
    if pinned >= tenant.at_risk:
        return _Wide(tuple((server, 1) for server in sorted(pinned)))
    held = tuple(sorted((server, gpus) for server, gpus in tenant.held.items() if gpus))
    return _Wide(held, tenant.spare or 0)
