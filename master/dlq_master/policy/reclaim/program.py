"""The reclaim as an integer program, and its relaxation.

Jobs on one server alone are a cost of that server, and jobs on the same servers are one. Servers that
cost the same and have the same wide jobs are one class, of which a number goes:

    min  sum a_k u_k + sum c_j y_j
    (1)  n_k y_j >= u_k               for every wide job j of class k, which has n_k servers
    (2)  sum_k u_k = N
    (3)  the costs are less than what is there already

u and y whole. Only servers with base workers are in it: the others cost nothing and have gone.
"""

from __future__ import annotations

from collections import defaultdict
from math import ceil, inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csr_array, vstack

from dlq_master.model.ids import NodeId
from dlq_master.policy.reclaim.demand import Demand

TREE_NODES = 20_000
_TOLERANCE = 1e-6
_OPTIMAL, _INFEASIBLE = 0, 2


class Found(NamedTuple):
    """The servers of a better choice (none: there is none, or it was not found in time), and what no
    choice costs less than."""

    servers: tuple[NodeId, ...]
    bound: float


class _Class(NamedTuple):
    """Servers with these wide jobs, by number, and so much cost of their own."""

    wide: tuple[int, ...]
    alone: float


class Program:
    """Columns: the classes' u, then the wide jobs' y."""

    def __init__(self, demand: Demand, free: set[NodeId], wanted: int) -> None:
        self._wanted = wanted
        self._whole = all(float(tenant.cost).is_integer() for tenant in demand.tenants)
        wide: dict[tuple[NodeId, ...], float] = defaultdict(float)
        alone: dict[NodeId, float] = defaultdict(float)
        for tenant in demand.tenants:
            servers = tuple(sorted(tenant.base))
            if len(servers) == 1:
                alone[servers[0]] += tenant.cost
            elif servers:
                wide[servers] += tenant.cost
        on: dict[NodeId, list[int]] = defaultdict(list)
        for number, servers in enumerate(wide):
            for server in servers:
                on[server].append(number)
        self._classes: dict[_Class, list[NodeId]] = defaultdict(list)
        for server in demand.servers:
            if server not in free:
                self._classes[_Class(tuple(on[server]), alone[server])].append(server)
        self._sizes = [float(len(servers)) for servers in self._classes.values()]
        self._costs = np.array([*(each.alone for each in self._classes), *wide.values()])
        self._rows = self._laid_out()

    def relaxed(self) -> float:
        """What the relaxation costs; no choice costs less."""
        links, count = self._rows
        there = links.shape[0] > 0
        found = linprog(
            self._costs,
            A_ub=-links if there else None,
            b_ub=np.zeros(links.shape[0]) if there else None,
            A_eq=count,
            b_eq=[self._wanted],
            bounds=np.column_stack([np.zeros(len(self._costs)), self._most()]),
            method="highs",
        )
        return self._raised(float(found.fun)) if found.status == _OPTIMAL else -inf

    def solve(self, known: float, time_limit_s: float) -> Found:
        """A choice that costs less than what is known, if there is one."""
        links, count = self._rows
        rows = csr_array(vstack([links, count, csr_array(self._costs.reshape(1, -1))]))
        low = np.array([*[0.0] * links.shape[0], self._wanted, -np.inf])
        less = known - 1.0 if self._whole else known
        high = np.array([*[np.inf] * links.shape[0], self._wanted, less + _TOLERANCE])
        found = milp(
            self._costs,
            integrality=np.ones(len(self._costs)),
            bounds=Bounds(0.0, self._most()),
            constraints=LinearConstraint(rows, low, high),
            options={
                "time_limit": time_limit_s,
                "node_limit": TREE_NODES,
                "mip_rel_gap": _TOLERANCE / 10,
            },
        )
        if found.status == _INFEASIBLE:
            return Found((), known)
        bound = -inf if found.mip_dual_bound is None else self._raised(float(found.mip_dual_bound))
        if found.x is None:
            return Found((), min(bound, known))
        counts = np.rint(found.x[: len(self._sizes)]).astype(int)
        taken = [
            server
            for servers, count in zip(self._classes.values(), counts, strict=True)
            for server in servers[:count]
        ]
        return Found(tuple(taken), bound)

    def _most(self) -> NDArray[np.float64]:
        return np.array([*self._sizes, *[1.0] * (len(self._costs) - len(self._sizes))])

    def _raised(self, bound: float) -> float:
        """Whole costs make a whole sum."""
        return float(ceil(bound - _TOLERANCE)) if self._whole else bound

    def _laid_out(self) -> tuple[csr_array, csr_array]:
        """(1) and (2)"""
        classes = len(self._sizes)
        links = [(at, classes + y) for at, each in enumerate(self._classes) for y in each.wide]
        rows = range(len(links))
        columns = [*(y for _, y in links), *(u for u, _ in links)]
        weights = [*(self._sizes[u] for u, _ in links), *[-1.0] * len(links)]
        width = len(self._costs)
        return (
            csr_array((weights, ([*rows, *rows], columns)), (len(links), width)),
            csr_array(([1.0] * classes, ([0] * classes, range(classes))), (1, width)),
        )
