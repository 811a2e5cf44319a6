"""Jobs on nodes so that as little as possible is paid for GPUs that nobody uses.

Equal nodes are interchangeable: only their kind and the number of used GPUs matter. So choosing one
takes as many steps as there are such states, not as there are nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlq_master.policy.priced.catalogue import Catalogue
from dlq_master.policy.priced.situation import Grant, Schedule


class NodePacking:
    """Nodes that grow with what is put on them, up to the largest type of their kind."""

    def __init__(self, catalogue: Catalogue, nodes: int) -> None:
        self.price: list[list[float]] = catalogue.price.tolist()
        self.most: list[int] = catalogue.most.tolist()
        self.room: list[list[int]] = catalogue.room.tolist()
        self.smallest: list[list[int]] = catalogue.smallest.tolist()
        self.nodes = nodes
        self.kind: list[int] = []  # of each open node
        self.used: list[int] = []
        self.on: list[dict[int, int]] = []  # job -> GPUs
        self.states = [[set[int]() for _ in range(most + 1)] for most in self.most]

    def cheapest(self, kind: int, gpus: int) -> tuple[float, int] | None:
        """The addition to the price per hour, and the node (-1: a new one); the fullest of equals;
        None: it fits on none.
        """
        price, found, node = self.price[kind], float("inf"), None
        for used in range(self.most[kind] - gpus, 0, -1):
            at = self.states[kind][used]
            if at and (more := price[used + gpus] - price[used]) < found - 1e-9:
                found, node = more, min(at)
        if len(self.kind) < self.nodes and price[gpus] < found - 1e-9:
            found, node = price[gpus], -1
        return None if node is None else (found, node)

    def holds(self, kind: int, gpus: int, node: int) -> bool:
        """Whether so many GPUs more fit on the node (-1: a new one) of that kind."""
        return (0 if node < 0 else self.used[node]) + gpus <= self.most[kind]

    def put(self, job: int, kind: int, gpus: int, node: int) -> int:
        """On that node, or on a new one if it is -1; returns which."""
        if node < 0:
            node = len(self.kind)
            self.kind.append(kind)
            self.used.append(0)
            self.on.append({})
        used = self.used[node]
        self.states[kind][used].discard(node)
        self.states[kind][used + gpus].add(node)
        self.used[node] = used + gpus
        self.on[node][job] = self.on[node].get(job, 0) + gpus
        return node

    def largest_hole(self, kind: int) -> tuple[int, int] | None:
        """(GPUs that are free, node) on the emptiest node, a new one (-1) before all; None: all are
        full.
        """
        if len(self.kind) < self.nodes:
            return self.most[kind], -1
        for used, at in enumerate(self.states[kind][:-1]):
            if at:
                return self.most[kind] - used, min(at)
        return None

    def idle(self, node: int) -> int:
        """GPUs of the cheapest type that holds what is used, beyond that."""
        return self.room[self.kind[node]][self.used[node]] - self.used[node]

    def schedule(self, keys: Sequence[int]) -> Schedule:
        """`keys` of the jobs by their numbers."""
        types = {
            n: self.smallest[k][u]
            for n, (k, u) in enumerate(zip(self.kind, self.used, strict=True))
        }
        grants = {
            keys[job]: Grant(n, gpus) for n, on in enumerate(self.on) for job, gpus in on.items()
        }
        return Schedule(types, grants)
