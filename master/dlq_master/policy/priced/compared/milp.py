"""The mixed integer program of one decision (P1), for small cases: as printed, with its slips
mended.

Due dates count from now in (P1h) and (P1i); the x of (P1c)-(P1s) have their index g. A node with a
larger type than the used one pays mu for each idle GPU. The product pi_jn alpha_jn is linear here.
A node costs at least the deployment of the job that its alpha chooses, and the minimum makes that
job the cheapest one. Variables grow with jobs x nodes x types x GPUs: 6 jobs on 3 nodes of Table 2
are 540 x.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dlq_master.model.late import np, optimize, sparse
from dlq_master.policy.priced.catalogue import Floats
from dlq_master.policy.priced.rules import Rules
from dlq_master.policy.priced.situation import Grant, Schedule, Situation

_HOUR_S = 3600.0
_OPTIMAL, _LIMIT = 0, 1
_TIME_LIMIT_S = 60.0


class SolvedMilp(NamedTuple):
    """The best schedule found (None: none in time), its f_OBJ, and the bound that was proven."""

    schedule: Schedule | None
    cost: float
    bound: float


class _Choice(NamedTuple):
    """x_jnvg = 1."""

    job: int
    node: int
    type: int
    gpus: int


def step_milp(situation: Situation, rules: Rules) -> SolvedMilp:
    """Solve (P1) with rho and mu of `rules`; its time limit makes the answer depend on the host."""
    model = _Model(situation, rules)
    rows, low, high = model.constraints()
    solved = optimize.milp(
        model.objective,
        integrality=model.integer,
        bounds=optimize.Bounds(np.zeros(model.size), model.upper),
        constraints=optimize.LinearConstraint(rows, low, high),
        options={"time_limit": _TIME_LIMIT_S, "mip_rel_gap": 0.0},
    )
    bound = float(solved.mip_dual_bound) if solved.mip_dual_bound is not None else -np.inf
    if solved.status not in (_OPTIMAL, _LIMIT) or solved.x is None:
        return SolvedMilp(None, float("inf"), bound + model.constant)
    return SolvedMilp(
        model.schedule(solved.x), float(solved.fun) + model.constant, bound + model.constant
    )


class _Model:
    """Columns: x (choices), y_nv, alpha_jn, then the cost kappa_n of each node."""

    def __init__(self, situation: Situation, rules: Rules) -> None:
        self.situation = situation
        types, kinds = situation.catalogue.types, situation.catalogue.kinds
        jobs, nodes = range(len(situation.jobs)), range(situation.nodes)
        self.choices = [
            _Choice(job, node, n, gpus)
            for job in jobs
            for node in nodes
            for n in situation.catalogue.offered
            for gpus in range(1, types[n].gpus + 1)
            if np.isfinite(situation.time[job, kinds.index(types[n].kind), gpus - 1])
        ]
        self.time = np.array([self._time(choice) for choice in self.choices])
        price = np.array([types[choice.type].price_per_hour for choice in self.choices])
        self.deployment: Floats = self.time * price / _HOUR_S
        self.y0 = len(self.choices)
        self.alpha0 = self.y0 + len(nodes) * len(types)
        self.kappa0 = self.alpha0 + len(jobs) * len(nodes)
        self.size = self.kappa0 + len(nodes)
        self.integer = np.ones(self.size)
        self.integer[self.kappa0 :] = 0
        self.upper = np.ones(self.size)
        self.upper[self.kappa0 :] = np.inf
        self._cost(rules)

    def _cost(self, rules: Rules) -> None:
        situation = self.situation
        worst = np.maximum(0.0, situation.interval_s + situation.slowest - situation.due)
        waits = rules.rho * worst * situation.weight
        self.constant = float(waits.sum())  # all wait, but for whom x is 1
        job = np.array([choice.job for choice in self.choices], dtype=np.int64)
        late = np.maximum(0.0, self.time - situation.due[job]) * situation.weight[job]
        gpus = np.array([choice.gpus for choice in self.choices])
        self.objective = np.zeros(self.size)
        self.objective[: self.y0] = late - waits[job] - rules.mu * gpus
        for node in range(situation.nodes):
            for n, rented in enumerate(situation.catalogue.types):
                self.objective[self._y(node, n)] = rules.mu * rented.gpus
        self.objective[self.kappa0 :] = 1.0

    def constraints(self) -> tuple[object, Floats, Floats]:
        """Rows of (P1b)-(P1n) with their limits."""
        rows: list[list[tuple[int, float]]] = []
        low: list[float] = []
        high: list[float] = []

        def add(terms: Sequence[tuple[int, float]], least: float, most: float) -> None:
            rows.append(list(terms))
            low.append(least)
            high.append(most)

        jobs, nodes = range(len(self.situation.jobs)), range(self.situation.nodes)
        types = self.situation.catalogue.types
        at: dict[tuple[int, int], list[int]] = {(job, node): [] for job in jobs for node in nodes}
        for column, choice in enumerate(self.choices):
            at[choice.job, choice.node].append(column)
        for job in jobs:  # P1m, P1f
            add([(c, 1.0) for node in nodes for c in at[job, node]], 0, 1)
        for node in nodes:
            opened = [(self._y(node, n), 1.0) for n in range(len(types))]
            add(opened, 0, 1)  # P1b
            for n, rented in enumerate(types):  # P1c, P1g: nothing without y, no more than it has
                mine = [
                    (c, float(self.choices[c].gpus))
                    for job in jobs
                    for c in at[job, node]
                    if self.choices[c].type == n
                ]
                add([*mine, (self._y(node, n), -float(rented.gpus))], -np.inf, 0)
            add(
                [*((self._alpha(j, node), 1.0) for j in jobs), *((y, -1.0) for y, _ in opened)],
                0,
                0,
            )
            for job in jobs:  # P1l, and the node's cost
                columns = at[job, node]
                add([(self._alpha(job, node), 1.0), *((c, -1.0) for c in columns)], -np.inf, 0)
                most = max((float(self.deployment[c]) for c in columns), default=0.0)
                add(
                    [(self.kappa0 + node, 1.0), (self._alpha(job, node), -most)]
                    + [(c, -float(self.deployment[c])) for c in columns],
                    -most, np.inf,
                )  # fmt: skip
        every = [(self._y(node, n), 1.0) for node in nodes for n in range(len(types))]
        count = float(min(len(nodes), len(jobs)))
        add(every, count, count)  # P1n
        data = [(r, c, v) for r, terms in enumerate(rows) for c, v in terms]
        table = sparse.csr_array(
            ([v for *_, v in data], ([r for r, *_ in data], [c for _, c, _ in data])),
            shape=(len(rows), self.size),
        )
        return table, np.array(low), np.array(high)

    def schedule(self, x: Floats) -> Schedule:
        """The runs of jobs on nodes, by the columns that are 1."""
        types = {
            node: n
            for node in range(self.situation.nodes)
            for n in range(len(self.situation.catalogue.types))
            if x[self._y(node, n)] > 0.5
        }
        taken = [choice for choice, share in zip(self.choices, x, strict=False) if share > 0.5]
        jobs = self.situation.jobs
        return Schedule(types, {jobs[c.job].key: Grant(c.node, c.gpus) for c in taken})

    def _time(self, choice: _Choice) -> float:
        catalogue = self.situation.catalogue
        kind = catalogue.kinds.index(catalogue.types[choice.type].kind)
        return float(self.situation.time[choice.job, kind, choice.gpus - 1])

    def _y(self, node: int, n: int) -> int:
        return self.y0 + node * len(self.situation.catalogue.types) + n

    def _alpha(self, job: int, node: int) -> int:
        return self.alpha0 + job * self.situation.nodes + node
