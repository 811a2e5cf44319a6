"""The exact placement of a batch: an integer program over classes of nodes and of jobs.

Nodes with f GPUs free are one class, and so are jobs with the same width and speed:

    u[G,pi]  jobs of G GPUs that are cut as partition pi            whole
    y[c,n]   jobs of class c = (G, speed) on n nodes                whole
    z[f,q]   nodes with f GPUs free that are cut as pattern q       whole

    max  sum RW_c(n) y[c,n]
    (1)  sum_n y[c,n] = count_c                                     everybody is placed
    (2)  sum_{c of G} y[c,n] = sum_{|pi|=n} u[G,pi]
    (3)  sum_q z[f,q] <= nodes_f
    (4)  sum #s(q) z[f,q] >= sum #s(pi) u[G,pi]                     for every size s >= 2

Parts of one GPU go wherever one is left, so they have no row, and patterns are cut until no piece
of two fits. Two parts of one job may come to lie on one node: the job is then faster than counted.
A placement on one node is a choice of its own, so that the optimum is not missed. Given u, (1) and
(2) are a transportation problem, so y is whole by itself; HiGHS is told so all the same, since its
slowest answers then come a third sooner.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dlq_master.model.late import np, optimize, sparse
from dlq_master.policy.place.packing.joint import TOLERANCE, BatchMember, Joint
from dlq_master.policy.place.packing.partitions import Partition, count, cuts, partitions

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Programs with more columns are not tried. Results below it depend on the program alone for as long
# as the tree limit ends it and not the clock.
MOST_COLUMNS = 20_000
TREE_NODES = 2_000
TIME_LIMIT_S = 2.0
_OPTIMAL, _LIMIT, _INFEASIBLE = 0, 1, 2


class Solution(NamedTuple):
    """`parts` of each member, and by number of free GPUs how nodes are cut for them; none: no
    placement was found. `bound`: no placement has a greater reward."""

    parts: tuple[Partition, ...] | None
    patterns: dict[int, list[Partition]]
    bound: float
    infeasible: bool = False


def solve(
    joint: Joint, *, together: bool = False, time_limit_s: float = TIME_LIMIT_S
) -> Solution | None:
    """The best placement that was found within the limits. None: the program is too large to try.

    `together`: each job on its fewest nodes or not at all; `infeasible` then proves that there is
    no such placement.
    """
    program = _Program(joint, together=together)
    return program.solve(time_limit_s) if program.small else None


class _Program:
    """Columns: u, then z, then y."""

    def __init__(self, joint: Joint, *, together: bool) -> None:
        self._joint = joint
        self._classes: dict[BatchMember, list[int]] = defaultdict(list)
        for at, member in enumerate(joint.members):
            self._classes[member].append(at)
        self._nodes = Counter(free for free in joint.free if free)
        self._largest = max(self._nodes, default=0)
        self._together = together
        self.small = self._columns() <= MOST_COLUMNS

    def _columns(self) -> int:
        largest = self._largest
        widths = {(each.gpus, each.fewest) for each in self._classes}
        # So many parts, none above the largest: as many ways as to spread what they lack of it.
        totals = [n * largest - gpus if self._together else gpus for gpus, n in widths]
        cut = sum(count(total, largest) for total in totals if total >= 0)
        if cut > MOST_COLUMNS:
            return cut
        return cut + sum(count(free, free) for free in self._nodes)

    def solve(self, time_limit_s: float) -> Solution:
        self._lay_out()
        if {gpus for gpus, _ in self._u} != {each.gpus for each in self._classes}:
            return Solution(None, {}, 0.0, infeasible=True)  # some cannot be cut as they must be
        found: optimize.OptimizeResult = optimize.milp(
            self._costs,
            integrality=np.ones_like(self._costs),
            bounds=optimize.Bounds(0.0, self._highs),
            constraints=optimize.LinearConstraint(self._matrix(), self._low, self._high),
            options={
                "time_limit": time_limit_s,
                "node_limit": TREE_NODES,
                "mip_rel_gap": TOLERANCE / 10,
            },
        )
        most = self._joint.most
        bound = most if found.mip_dual_bound is None else min(most, -float(found.mip_dual_bound))
        if found.x is None:
            return Solution(None, {}, bound, infeasible=found.status == _INFEASIBLE)
        return self._read(np.rint(found.x[: len(self._u) + len(self._z)]).astype(int), bound)

    def _lay_out(self) -> None:
        fewest: dict[int, int] = {}
        for member in self._classes:
            fewest[member.gpus] = max(member.fewest, fewest.get(member.gpus, 1))
        self._u = [
            (gpus, cut)
            for gpus in sorted(fewest)
            for cut in partitions(gpus, self._largest, fewest[gpus] if self._together else None)
        ]
        sizes = tuple(sorted({part for _, cut in self._u for part in cut} - {1}, reverse=True))
        self._z = [(free, cut) for free in sorted(self._nodes) for cut in cuts(free, sizes)]
        counts = {gpus: sorted({len(cut) for g, cut in self._u if g == gpus}) for gpus in fewest}
        self._y = [(each, nodes) for each in self._classes for nodes in counts[each.gpus]]
        self._rows: list[tuple[list[int], list[float]]] = []
        self._low: list[float] = []
        self._high: list[float] = []
        first_z, first_y = len(self._u), len(self._u) + len(self._z)
        self._everybody(first_y)
        self._cut_as_counted(first_y)
        self._nodes_there_are(first_z)
        self._pieces(sizes, first_z)
        self._costs = np.zeros(first_y + len(self._y))
        for column, (each, nodes) in enumerate(self._y, start=first_y):
            self._costs[column] = -each.reward(nodes)
        highs = [float(self._wanted(gpus)) for gpus, _ in self._u]
        highs += [float(self._nodes[free]) for free, _ in self._z]
        highs += [float(len(self._classes[each])) for each, _ in self._y]
        self._highs = np.array(highs)

    def _wanted(self, gpus: int) -> int:
        return sum(len(who) for each, who in self._classes.items() if each.gpus == gpus)

    def _everybody(self, first_y: int) -> None:
        """(1)"""
        columns: dict[BatchMember, list[int]] = defaultdict(list)
        for column, (each, _) in enumerate(self._y, start=first_y):
            columns[each].append(column)
        for each, who in self._classes.items():
            mine = columns[each]
            self._add(mine, [1.0] * len(mine), len(who), len(who))

    def _cut_as_counted(self, first_y: int) -> None:
        """(2)"""
        rows: dict[tuple[int, int], tuple[list[int], list[float]]] = defaultdict(lambda: ([], []))
        for column, (gpus, cut) in enumerate(self._u):
            rows[gpus, len(cut)][0].append(column)
            rows[gpus, len(cut)][1].append(-1.0)
        for column, (each, nodes) in enumerate(self._y, start=first_y):
            rows[each.gpus, nodes][0].append(column)
            rows[each.gpus, nodes][1].append(1.0)
        for columns, weights in rows.values():
            self._add(columns, weights, 0.0, 0.0)

    def _nodes_there_are(self, first_z: int) -> None:
        """(3)"""
        for free, nodes in sorted(self._nodes.items()):
            columns = [first_z + at for at, (f, _) in enumerate(self._z) if f == free]
            self._add(columns, [1.0] * len(columns), -np.inf, nodes)

    def _pieces(self, sizes: Sequence[int], first_z: int) -> None:
        """(4)"""
        for size in sizes:
            needs = [(at, -cut.count(size)) for at, (_, cut) in enumerate(self._u) if size in cut]
            gives = [
                (first_z + at, cut.count(size))
                for at, (_, cut) in enumerate(self._z)
                if size in cut
            ]
            columns, weights = zip(*needs, *gives, strict=True)
            self._add([*columns], [float(weight) for weight in weights], 0.0, np.inf)

    def _add(self, columns: list[int], weights: list[float], low: float, high: float) -> None:
        self._rows.append((columns, weights))
        self._low.append(low)
        self._high.append(high)

    def _matrix(self) -> sparse.csr_array:
        at = [row for row, (columns, _) in enumerate(self._rows) for _ in columns]
        columns = [column for columns, _ in self._rows for column in columns]
        weights = [weight for _, weights in self._rows for weight in weights]
        return sparse.csr_array((weights, (at, columns)), shape=(len(self._rows), len(self._highs)))

    def _read(self, values: NDArray[np.int64], bound: float) -> Solution:
        """Each job's own partition, and how nodes are cut."""
        cut_as: dict[int, list[Partition]] = defaultdict(list)
        for (gpus, cut), times in zip(self._u, values, strict=False):
            cut_as[gpus] += [cut] * int(times)
        patterns: dict[int, list[Partition]] = defaultdict(list)
        for (free, cut), times in zip(self._z, values[len(self._u) :], strict=True):
            patterns[free] += [cut] * int(times)
        members = self._joint.members
        parts: list[Partition] = [()] * len(members)
        for gpus, offers in cut_as.items():
            who = [at for at, member in enumerate(members) if member.gpus == gpus]
            for at, cut in zip(who, _shared([members[at] for at in who], offers), strict=True):
                parts[at] = cut
        return Solution(tuple(parts), dict(patterns), bound)


def _shared(members: Sequence[BatchMember], offers: list[Partition]) -> list[Partition]:
    """The partition of each job of one width, so that together they are fastest."""
    counts = sorted({len(cut) for cut in offers})
    if len(counts) == 1:
        return offers
    gains = {(each, n): each.reward(n) for each in set(members) for n in counts}
    worth = np.array([[gains[each, len(cut)] for cut in offers] for each in members])
    _, chosen = optimize.linear_sum_assignment(worth, maximize=True)
    return [offers[at] for at in chosen]
