"""One schedule that is changed job by job; its f-bar or f_OBJ is kept node by node."""

from __future__ import annotations

from typing import NamedTuple

from dlq_master.model.late import np
from dlq_master.policy.priced.greedy.batch import NOWHERE, ScheduleRows
from dlq_master.policy.priced.rules import Proxy, Rules

_HOUR_S = 3600.0
_LEAST = 1e-12


class ScheduleShape(NamedTuple):
    """The allocation of a job. `room`: the GPUs of the node type in the schedule that it comes
    from.
    """

    kind: int
    gpus: int
    room: int


class Undo(NamedTuple):
    """A job's former place, and its nodes' former values: (node, kind, room, used, worth)."""

    job: int
    node: int
    gpus: int
    nodes: tuple[tuple[int, int, int, int, float], ...]

    @property
    def touched(self) -> set[int]:
        """The nodes that the move changed."""
        return {row[0] for row in self.nodes}


class Mutable:
    """A schedule whose nodes keep their size while jobs move.

    An empty node is closed, and may be opened with any size. `score` is as in `proxy.score`, with
    f_OBJ as the paper prints it.
    """

    def __init__(self, batch: ScheduleRows, row: int, rules: Rules) -> None:
        situation = batch.situation
        self.rules = rules
        self.time = situation.time.tolist()
        self.due, self.weight = situation.due.tolist(), situation.weight.tolist()
        self.slowest = situation.slowest.tolist()
        self.price = situation.catalogue.price.tolist()
        self.room_of = situation.catalogue.room.tolist()
        worst = np.maximum(0.0, situation.interval_s + situation.slowest - situation.due)
        self.waits = (rules.rho * worst * situation.weight).tolist()
        self.node: list[int] = batch.node[row].tolist()
        self.gpus: list[int] = batch.gpus[row].tolist()
        self.kind: list[int] = batch.kind[row].tolist()
        self.used: list[int] = batch.used[row].tolist()
        self.room = [
            self.room_of[kind][used] if used else 0
            for kind, used in zip(self.kind, self.used, strict=True)
        ]
        self.on: list[set[int]] = [set() for _ in self.kind]
        for job, node in enumerate(self.node):
            if node != NOWHERE:
                self.on[node].add(job)
        self.worth = [self._worth(node) for node in range(len(self.kind))]

    def shape(self, job: int) -> ScheduleShape | None:
        """The shape of a job; None: it waits."""
        node = self.node[job]
        return (
            None
            if node == NOWHERE
            else ScheduleShape(self.kind[node], self.gpus[job], self.room[node])
        )

    def fits(self, job: int, shape: ScheduleShape | None) -> int | None:
        """The node where a job could have the shape: its own one, else the first with room, else a
        closed one.

        -1 (NOWHERE): the shape is to wait. None: no node has room.
        """
        if shape is None:
            return NOWHERE
        own = self.node[job]
        if own != NOWHERE:
            mine = self.gpus[job]
            if self.used[own] == mine or (
                self.kind[own] == shape.kind
                and self.room[own] - self.used[own] + mine >= shape.gpus
            ):
                return own
        closed = None
        for node, used in enumerate(self.used):
            if not used:
                closed = node if closed is None else closed
            elif self.kind[node] == shape.kind and self.room[node] - used >= shape.gpus:
                return node
        return closed

    def gain(self, job: int, node: int, shape: ScheduleShape | None) -> float:
        """The change of the score by the move; the schedule stays as it is."""
        gained, before = self.move(job, node, shape)
        self.undo(before)
        return gained

    def move(self, job: int, node: int, shape: ScheduleShape | None) -> tuple[float, Undo]:
        """Move a job; return the change of the score, and the undo."""
        touched = {self.node[job], node} - {NOWHERE}
        before = Undo(
            job,
            self.node[job],
            self.gpus[job],
            tuple((n, self.kind[n], self.room[n], self.used[n], self.worth[n]) for n in touched),
        )
        gained = self._waiting(job)
        self._leave(job)
        if shape is not None:
            if not self.used[node]:
                self.kind[node], self.room[node] = shape.kind, max(shape.room, shape.gpus)
            self.on[node].add(job)
            self.used[node] += shape.gpus
            self.node[job], self.gpus[job] = node, shape.gpus
        for n in touched:
            gained -= self.worth[n]
            self.worth[n] = self._worth(n)
            gained += self.worth[n]
        return gained - self._waiting(job), before

    def undo(self, before: Undo) -> None:
        """Undo the last move that is not undone."""
        self._leave(before.job)
        for n, kind, room, used, worth in before.nodes:
            self.kind[n], self.room[n], self.used[n], self.worth[n] = kind, room, used, worth
        self.node[before.job], self.gpus[before.job] = before.node, before.gpus
        if before.node != NOWHERE:
            self.on[before.node].add(before.job)

    def _leave(self, job: int) -> None:
        node = self.node[job]
        if node == NOWHERE:
            return
        self.on[node].remove(job)
        self.used[node] -= self.gpus[job]
        self.node[job], self.gpus[job] = NOWHERE, 0
        if not self.used[node]:
            self.kind[node] = NOWHERE

    def into(self, batch: ScheduleRows) -> ScheduleRows:
        """The schedule as a batch of one row; each node has the cheapest type that holds its used
        GPUs.
        """
        made = ScheduleRows.empty(batch.situation, 1)
        made.node[0], made.gpus[0] = self.node, self.gpus
        made.kind[0], made.used[0] = self.kind, self.used
        return made

    @property
    def score(self) -> float:
        """The score of the whole schedule."""
        waiting = sum(self._waiting(job) for job, node in enumerate(self.node) if node == NOWHERE)
        return sum(self.worth) - waiting

    def _waiting(self, job: int) -> float:
        """The cost of a waiting job; 0 if it runs, and by f-bar."""
        if self.rules.proxy is Proxy.EFFICIENCY or self.node[job] != NOWHERE:
            return 0.0
        return float(self.waits[job])

    def _worth(self, node: int) -> float:
        """A node's part of the score."""
        used, kind = self.used[node], self.kind[node]
        if not used:
            return 0.0
        price = self.price[kind][self.room[node]] / _HOUR_S
        if self.rules.proxy is Proxy.EFFICIENCY:
            return sum(self._value(job, kind, price, used) for job in self.on[node])
        times = {job: self.time[job][kind][self.gpus[job] - 1] for job in self.on[node]}
        late = sum(self.weight[j] * max(0.0, time - self.due[j]) for j, time in times.items())
        idle = self.rules.mu * (self.room[node] - used)
        return float(-(late + idle + price * min(times.values())))

    def _value(self, job: int, kind: int, price: float, used: int) -> float:
        """A job's part of f-bar."""
        time = self.time[job][kind][self.gpus[job] - 1]
        late = self.weight[job] * max(0.0, time - self.due[job])
        cost = time * price * self.gpus[job] / used + late
        return float(self.slowest[job] / max(cost, _LEAST))
