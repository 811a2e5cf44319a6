"""The mixed integer program of one decision (P1), for small cases, with its misprints corrected.

Due dates count from now in (P1h) and (P1i), and the x of (P1c)-(P1s) have their index g. A node of
a larger type than the used one pays mu for each idle GPU. The product pi_jn alpha_jn is linearised.
Each x has an alpha of at most x, which pays the deployment cost of its x. The alphas of an open
node sum to 1, and the minimum chooses the cheapest one. Nodes are alike, so job j is on one of the
first j nodes. Variables grow with jobs x nodes x types x GPUs: 6 jobs on 3 nodes of Table 2 have
450 x.
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


class Effort(NamedTuple):
    """When the solver stops: seconds, branches (0: no limit), and the gap to its bound as a share
    of f_OBJ.

    With a limit of seconds the answer depends on the host; with one of branches it does not.
    """

    limit_s: float = 60.0
    branches: int = 0
    gap: float = 0.0


EXACT = Effort()


class SolvedMilp(NamedTuple):
    """The best schedule found (None: none in time), its f_OBJ, and the proven bound."""

    schedule: Schedule | None
    cost: float
    bound: float


class _Choice(NamedTuple):
    """x_jnvg = 1."""

    job: int
    node: int
    type: int
    gpus: int


def step_milp(situation: Situation, rules: Rules, effort: Effort = EXACT) -> SolvedMilp:
    """Solve (P1) with rho and mu of `rules`."""
    model = _Model(situation, rules)
    rows, low, high = model.constraints()
    options = {"time_limit": effort.limit_s, "mip_rel_gap": effort.gap}
    solved = optimize.milp(
        model.objective,
        integrality=model.integer,
        bounds=optimize.Bounds(model.lower, model.upper),
        constraints=optimize.LinearConstraint(rows, low, high),
        options=options | ({"node_limit": effort.branches} if effort.branches else {}),
    )
    bound = float(solved.mip_dual_bound) if solved.mip_dual_bound is not None else -np.inf
    if solved.status not in (_OPTIMAL, _LIMIT) or solved.x is None:
        return SolvedMilp(None, float("inf"), bound)
    return SolvedMilp(model.schedule(solved.x), float(solved.fun), bound)


class _Model:
    """The program's columns: the x (choices), their alphas, the y_nv, and a constant 1.

    The constant costs as much as all jobs waiting, so that the gap is a share of f_OBJ.
    """

    def __init__(self, situation: Situation, rules: Rules) -> None:
        self.situation = situation
        types, kinds = situation.catalogue.types, situation.catalogue.kinds
        jobs, nodes = range(len(situation.jobs)), range(situation.nodes)
        self.choices = [
            _Choice(job, node, n, gpus)
            for job in jobs
            for node in nodes[: job + 1]
            for n in situation.catalogue.offered
            for gpus in range(1, types[n].gpus + 1)
            if np.isfinite(situation.time[job, kinds.index(types[n].kind), gpus - 1])
        ]
        self.time = np.array([self._time(choice) for choice in self.choices])
        price = np.array([types[choice.type].price_per_hour for choice in self.choices])
        self.deployment: Floats = self.time * price / _HOUR_S
        self.y0 = 2 * len(self.choices)  # behind x and alpha
        self.one = self.y0 + len(nodes) * len(types)
        self.size = self.one + 1
        self.integer = np.ones(self.size)
        self.integer[len(self.choices) : self.y0] = 0
        self.lower, self.upper = np.zeros(self.size), np.ones(self.size)
        self.lower[self.one] = 1
        self._cost(rules)

    def _cost(self, rules: Rules) -> None:
        situation = self.situation
        worst = np.maximum(0.0, situation.interval_s + situation.slowest - situation.due)
        waits = rules.rho * worst * situation.weight
        job = np.array([choice.job for choice in self.choices], dtype=np.int64)
        late = np.maximum(0.0, self.time - situation.due[job]) * situation.weight[job]
        gpus = np.array([choice.gpus for choice in self.choices])
        self.objective = np.zeros(self.size)
        self.objective[: len(job)] = late - waits[job] - rules.mu * gpus
        self.objective[len(job) : self.y0] = self.deployment
        for node in range(situation.nodes):
            for n, rented in enumerate(situation.catalogue.types):
                self.objective[self._y(node, n)] = rules.mu * rented.gpus
        self.objective[self.one] = waits.sum()  # each x of 1 takes the cost of waiting back

    def constraints(self) -> tuple[object, Floats, Floats]:
        """The rows of (P1b)-(P1n) with their lower and upper limits."""
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
            for n, rented in enumerate(types):  # P1c, P1g: no job without y, GPUs as it has
                mine = [
                    (c, float(self.choices[c].gpus))
                    for job in jobs
                    for c in at[job, node]
                    if self.choices[c].type == n
                ]
                add([*mine, (self._y(node, n), -float(rented.gpus))], -np.inf, 0)
            alphas = [
                (len(self.choices) + c, 1.0) for job in jobs for c in at[job, node]
            ]  # P1k: exactly one of an open node
            add([*alphas, *((y, -1.0) for y, _ in opened)], 0, 0)
        for c in range(len(self.choices)):  # P1l
            add([(c, 1.0), (len(self.choices) + c, -1.0)], 0, 1)
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
        """The schedule of a solution: columns above 0.5 count as 1."""
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
        """The run time of a choice in seconds."""
        catalogue = self.situation.catalogue
        kind = catalogue.kinds.index(catalogue.types[choice.type].kind)
        return float(self.situation.time[choice.job, kind, choice.gpus - 1])

    def _y(self, node: int, n: int) -> int:
        """The column of y_nv: node `node` has type `n`."""
        return self.y0 + node * len(self.situation.catalogue.types) + n
