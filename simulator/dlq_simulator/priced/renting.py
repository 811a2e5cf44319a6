"""Nodes that are rented and released: the begin of their work, and their costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dlq_master.policy.priced.catalogue import Catalogue

_HOUR_S = 3600.0


class _Rented(NamedTuple):
    type: int
    since_s: float
    ready_s: float


class Renting:
    """A node is billed from when it is asked for, booting included, and for its minimum at least.
    An unneeded node stays until its minimum is over, as it is paid for. A job that asks for that
    type meanwhile gets it, at most `most` of both kinds together.
    """

    def __init__(self, catalogue: Catalogue, most: int) -> None:
        self._types = catalogue.types
        self._most = most
        self._nodes: dict[int, _Rented] = {}
        self._paid: list[_Rented] = []  # and idle, those first that are there for longest
        self.cost = 0.0  # $ of released nodes
        self.gpu_s = 0.0  # GPU-seconds, likewise
        self.hours = {rented.name: 0.0 for rented in catalogue.types}  # billed, likewise

    def become(self, types: Mapping[int, int], now_s: float) -> None:
        """From now on each node is of this type; nodes outside `types` are released."""
        self._settle(now_s)
        for node, had in list(self._nodes.items()):
            if types.get(node) != had.type:
                del self._nodes[node]
                if now_s < self._paid_until_s(had):
                    self._paid.append(had)
                else:
                    self._release(had, now_s)
        for node in sorted(types):
            if node not in self._nodes:
                self._nodes[node] = self._rented(types[node], now_s)
        while len(self._nodes) + len(self._paid) > self._most:
            self._release(self._paid.pop(0), now_s)

    def close(self, now_s: float) -> None:
        """Everything is released."""
        self.become({}, now_s)
        for had in self._paid:
            self._release(had, now_s)
        self._paid = []

    def ready_s(self, node: int) -> float:
        """When the node takes work, or took it first."""
        return self._nodes[node].ready_s

    def _rented(self, type_: int, now_s: float) -> _Rented:
        for at, idle in enumerate(self._paid):
            if idle.type == type_:
                return self._paid.pop(at)
        return _Rented(type_, now_s, now_s + self._types[type_].boot_s)

    def _settle(self, now_s: float) -> None:
        """An idle node goes when its minimum is over, or when its provider takes it back."""
        idle, self._paid = self._paid, []
        for had in idle:
            if now_s < self._paid_until_s(had):
                self._paid.append(had)
            else:
                self._release(had, self._paid_until_s(had))

    def _paid_until_s(self, had: _Rented) -> float:
        rented = self._types[had.type]
        return min(had.since_s + rented.minimum_billing_s, rented.until_s)

    def _release(self, had: _Rented, now_s: float) -> None:
        rented = self._types[had.type]
        billed_s = max(now_s - had.since_s, rented.minimum_billing_s)
        self.cost += billed_s / _HOUR_S * rented.price_per_hour
        self.hours[rented.name] += billed_s / _HOUR_S
        self.gpu_s += (now_s - had.since_s) * rented.gpus
