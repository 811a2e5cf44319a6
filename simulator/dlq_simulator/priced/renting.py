"""Nodes that are rented and released: when they take work, and what they cost."""

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
    """A node is billed from when it is asked for, booting included, and for its minimum at least."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._types = catalogue.types
        self._nodes: dict[int, _Rented] = {}
        self.cost = 0.0  # $ of what was released
        self.gpu_s = 0.0  # GPU-seconds, likewise

    def become(self, types: Mapping[int, int], now_s: float) -> None:
        """From now on each node is of this type; those that are not named are released."""
        for node, had in list(self._nodes.items()):
            if types.get(node) != had.type:
                self._release(node, now_s)
        for node in sorted(types):
            if node not in self._nodes:
                boot_s = self._types[types[node]].boot_s
                self._nodes[node] = _Rented(types[node], now_s, now_s + boot_s)

    def ready_s(self, node: int) -> float:
        """When the node takes work, or took it first."""
        return self._nodes[node].ready_s

    def _release(self, node: int, now_s: float) -> None:
        had = self._nodes.pop(node)
        rented = self._types[had.type]
        billed_s = max(now_s - had.since_s, rented.minimum_billing_s)
        self.cost += billed_s / _HOUR_S * rented.price_per_hour
        self.gpu_s += (now_s - had.since_s) * rented.gpus
