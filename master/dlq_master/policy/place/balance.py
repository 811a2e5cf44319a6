"""The placement program of Tiresias' Appendix D: the least network load on the busiest node.

The program is about one new job with model size M, W workers and K parameter servers that host s_j
of it. Nodes have g_i free GPUs and t_i traffic already. With w_i workers and the servers p_ji, node
i makes

    T_i = t_i + w_i (M - sum_j p_ji s_j) + (W - w_i) sum_j p_ji s_j,    minimise max_i T_i,
    w_i <= g_i (1),   sum_i w_i = W (2),   sum_i p_ji = 1 for each j (3).

Corrections:
- T_i multiplies two variables, so it is no integer *linear* program as printed. z_ji = w_i p_ji is
  exact with z_ji <= w_i and z_ji <= min(g_i, W) p_ji, because T_i only falls as z_ji rises.
- "minimize the total network traffic and also balance": the printed objective does only the second.
  Once one node is the busiest whatever happens, all else costs the same. Of the placements with the
  least maximum the one with the least total is taken.
- `j in K` means each of the K servers.
dlq starts processes only where a job holds GPUs: `beside` adds p_ji <= w_i.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dlq_master.model.late import np, optimize, sparse

if TYPE_CHECKING:
    from numpy.typing import NDArray

# A program with more p_ji than this is not tried. On two busy cores six nodes and eight servers
# took 0.5 to 2 s, ten nodes 2 to 5 s. Below it the answer depends on the program alone: both limits
# are for what nobody has seen.
MOST_BINARIES = 64
TREE_NODES = 2_000
TIME_LIMIT_S = 10.0
_OPTIMAL = 0


class BalanceProgram(NamedTuple):
    """One job and the nodes that may hold it. Sizes and traffic in one unit, such as bytes."""

    free: Sequence[int]  # g_i
    traffic: Sequence[float]  # t_i
    servers: Sequence[float]  # s_j; M is their sum
    workers: int  # W
    each: int | None = None  # an explicit width of each node that is used, or None
    beside: bool = False  # servers only where workers are


class BalanceSolution(NamedTuple):
    """`busiest` is max T_i, `total` what the job itself adds to all nodes."""

    workers: tuple[int, ...]
    servers: tuple[int, ...]  # the node of each
    busiest: float
    total: float


def load(program: BalanceProgram, workers: Sequence[int], servers: Sequence[int]) -> list[float]:
    """T_i of a placement, as the appendix prints it."""
    model, hosted = sum(program.servers), [0.0] * len(program.free)
    for size, node in zip(program.servers, servers, strict=True):
        hosted[node] += size
    rows = zip(program.traffic, workers, hosted, strict=True)
    return [t + w * (model - h) + (program.workers - w) * h for t, w, h in rows]


def solve(program: BalanceProgram, time_limit_s: float = TIME_LIMIT_S) -> BalanceSolution | None:
    """The proven optimum; None if there is no placement, or none was proven within the limits."""
    nodes, count = len(program.free), len(program.servers)
    if nodes * count > MOST_BINARIES or sum(program.free) < program.workers:
        return None
    unit = sum(program.servers)  # so that no coefficient is larger than the job is wide
    model = _Model(
        program._replace(
            traffic=[t / unit for t in program.traffic],
            servers=[size / unit for size in program.servers],
        )
    )
    first = model.minimise(model.busiest, float("inf"), time_limit_s)
    if first is None:
        return None
    second = model.minimise(model.total, first[-1] + 1e-7, time_limit_s)
    best = first if second is None else second
    workers = tuple(round(w) for w in best[:nodes])
    hosts = best[nodes : nodes + nodes * count].reshape(count, nodes)
    servers = tuple(int(node) for node in hosts.argmax(axis=1))
    loads = load(program, workers, servers)
    return BalanceSolution(workers, servers, max(loads), sum(loads) - sum(program.traffic))


class _Model:
    """Columns: w_i, then p_ji and z_ji by server and node, then u_i (only with `each`), then T."""

    def __init__(self, program: BalanceProgram) -> None:
        nodes, count = len(program.free), len(program.servers)
        each = program.each
        self._width = nodes + 2 * nodes * count + (nodes if each else 0) + 1
        self._rows: list[tuple[list[int], list[float], float, float]] = []
        size, wide = sum(program.servers), program.workers
        most = [min(free, wide) for free in program.free]
        self.busiest = self._objective([self._width - 1], [1.0])
        p, z = nodes, nodes + nodes * count
        both = [j * nodes + i for j in range(count) for i in range(nodes)]
        sizes = [program.servers[at // nodes] for at in both]
        self.total = self._objective([z + at for at in both], [-2.0 * s for s in sizes])
        self._add([*range(nodes)], [1.0] * nodes, wide, wide)
        for j in range(count):
            self._add([p + j * nodes + i for i in range(nodes)], [1.0] * nodes, 1, 1)
        for j in range(count - 1):
            if program.servers[j] == program.servers[j + 1]:  # equal servers in the order of nodes
                pair = [p + k * nodes + i for k in (j, j + 1) for i in range(nodes)]
                places = [float(i) for i in range(nodes)]
                self._add(pair, [*places, *(-place for place in places)], -np.inf, 0)
        for at in both:
            i = at % nodes
            self._add([z + at, i], [1.0, -1.0], -np.inf, 0)
            self._add([z + at, p + at], [1.0, -float(most[i])], -np.inf, 0)
            if program.beside:
                self._add([p + at, i], [1.0, -1.0], -np.inf, 0)
        for i in range(nodes):
            own = range(i, nodes * count, nodes)
            columns = [self._width - 1, i, *(p + at for at in own), *(z + at for at in own)]
            weights = [1.0, -size, *(-wide * s for s in program.servers)]
            self._add(
                columns, [*weights, *(2 * s for s in program.servers)], program.traffic[i], np.inf
            )
            if each:
                self._add([i, self._width - 1 - nodes + i], [1.0, -float(each)], 0, 0)
        highs = [*most, *([1] * nodes * count), *(most[at % nodes] for at in both)]
        self._highs = [*map(float, highs), *([1.0] * nodes if each else []), np.inf]
        whole = [1] * (nodes + nodes * count) + [0] * nodes * count
        self._whole = [*whole, *([1] * nodes if each else []), 0]

    def minimise(
        self, objective: NDArray[np.float64], most: float, time_limit_s: float
    ) -> NDArray[np.float64] | None:
        """The values of all columns with T at most `most`, if they are proven to be the best."""
        found = optimize.milp(
            objective,
            integrality=np.array(self._whole),
            bounds=optimize.Bounds(0.0, np.array([*self._highs[:-1], most])),
            constraints=self._constraints(),
            options={"time_limit": time_limit_s, "node_limit": TREE_NODES, "mip_rel_gap": 1e-9},
        )
        return np.asarray(found.x) if found.status == _OPTIMAL else None

    def _objective(self, columns: list[int], weights: list[float]) -> NDArray[np.float64]:
        made = np.zeros(self._width)
        made[columns] = weights
        return made

    def _add(self, columns: list[int], weights: list[float], low: float, high: float) -> None:
        self._rows.append((columns, weights, low, high))

    def _constraints(self) -> optimize.LinearConstraint:
        at = [row for row, (columns, *_) in enumerate(self._rows) for _ in columns]
        columns = [column for columns, *_ in self._rows for column in columns]
        weights = [weight for _, weights, *_ in self._rows for weight in weights]
        matrix = sparse.csr_array((weights, (at, columns)), shape=(len(self._rows), self._width))
        return optimize.LinearConstraint(
            matrix, [row[2] for row in self._rows], [row[3] for row in self._rows]
        )
