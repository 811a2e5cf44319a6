"""Machines that are rented, or lately were, and what is asked of them every second: never by a walk
over all that ever were.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from math import inf

from dlq_master.model.ids import NodeId
from dlq_master.model.machines.rented import Machine

DAY_S = 86_400.0
MOST_ENDED = 2_000  # that a master keeps; more, if more have ended within 24 hours
MOST_TOLD = 8  # of a pool, the last to end: after so many failures a rest is the longest


class Fleet(Mapping[str, Machine]):
    """By name. Time never runs back in it.

    `most_ended`: of those that are over it keeps so many, and all of the last 24 hours before the
    last end."""

    def __init__(self, machines: Iterable[Machine] = (), most_ended: float = MOST_ENDED) -> None:
        self._every: dict[str, Machine] = {}
        self._open: dict[str, Machine] = {}
        self._on_node: dict[NodeId, str] = {}  # the last that was asked for
        self._ended: deque[Machine] = deque()  # in the order in which they ended, as all below
        self._last: dict[str, deque[Machine]] = {}  # by pool
        self._day: deque[Machine] = deque()
        self._day_cost: float | None = 0.0  # of those; None: it is to be worked out anew
        self._most_ended = most_ended
        for machine in sorted(machines, key=_end_s):
            self.put(machine)

    def __getitem__(self, name: str) -> Machine:
        return self._every[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._every)

    def __len__(self) -> int:
        return len(self._every)

    def put(self, machine: Machine) -> None:
        """A new machine, or another value of an open one. O(1); an end costs O(a day's ends)."""
        name = machine.request_id
        before = self._every.get(name)
        self._every[name] = machine
        self._on_node[machine.node_id] = name
        if machine.open:
            self._open[name] = machine
        elif before is None or before.open:
            self._open.pop(name, None)
            self._end(machine)

    def open(self) -> list[Machine]:
        """All that are, or may be, there and paid, in the order in which they were put."""
        return [*self._open.values()]

    def of_node(self, node_id: NodeId) -> Machine | None:
        """The open one that is, or is to be, this node."""
        return self._open.get(self._on_node.get(node_id, ""))

    def last_of_node(self, node_id: NodeId) -> Machine | None:
        """The same, or the last one that was."""
        return self._every.get(self._on_node.get(node_id, ""))

    def last_end_s(self, pool: str) -> float:
        """When the last of a pool that is over was; -inf: none is."""
        last = self._last.get(pool)
        return _end_s(last[-1]) if last else -inf

    def failures(self, pool: str) -> tuple[int, float]:
        """How many machines in a row were of no use (`MOST_TOLD` at most), and the last end."""
        over = [*self._last.get(pool, ())]
        over += [one for one in self._open.values() if one.failed and one.pool == pool]
        over.sort(key=_over_s, reverse=True)
        useful = (n for n, one in enumerate(over) if not one.failed)
        count = min(next(useful, len(over)), MOST_TOLD)
        return count, _over_s(over[0]) if over else -inf

    def day_cost(self, now_s: float) -> float:
        """The cost of all machines rented in the last 24 hours, open ones by now."""
        while self._day and _end_s(self._day[0]) <= now_s - DAY_S:
            self._day.popleft()
            self._day_cost = None
        if self._day_cost is None:
            self._day_cost = sum(one.cost(now_s) for one in self._day)
        return self._day_cost + sum(one.cost(now_s) for one in self._open.values())

    def _end(self, machine: Machine) -> None:
        self._ended.append(machine)
        self._day.append(machine)
        self._day_cost = None
        self._last.setdefault(machine.pool, deque(maxlen=MOST_TOLD)).append(machine)
        while (
            len(self._ended) > self._most_ended
            and _end_s(self._ended[0]) <= _end_s(machine) - DAY_S
        ):
            self._forget(self._ended.popleft())

    def _forget(self, old: Machine) -> None:
        del self._every[old.request_id]
        if self._on_node.get(old.node_id) == old.request_id:
            del self._on_node[old.node_id]


def _end_s(machine: Machine) -> float:
    return inf if machine.end_s is None else machine.end_s


def _over_s(machine: Machine) -> float:
    return machine.since_s if machine.end_s is None else machine.end_s
