"""What can be rented: node types with prices, and what a node costs for the GPUs used of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class NodeType(NamedTuple):
    """A machine that a provider rents; the price is for one whole node, $ per hour.

    `boot_s`: from when it is asked for until it takes work; both are billed, `minimum_billing_s` at least.
    `until_s`: the instant at which the provider takes such nodes back.
    """

    name: str
    kind: str  # of its GPUs
    gpus: int
    price_per_hour: float
    boot_s: float = 0.0
    minimum_billing_s: float = 0.0
    until_s: float = inf


@dataclass(frozen=True)
class Catalogue:
    """`smallest[k, u]`: the cheapest type of kind k with at least u GPUs, by its place in `types`; -1: none.

    `price[k, u]` is its price per hour (0 for u = 0) and `room[k, u]` its GPUs; `most[k]` the GPUs of the
    largest type of the kind and `largest[k]` that type.
    """

    types: tuple[NodeType, ...]
    kinds: tuple[str, ...] = field(init=False)
    most: Ints = field(init=False)
    largest: Ints = field(init=False)
    smallest: Ints = field(init=False)
    price: Floats = field(init=False)
    room: Ints = field(init=False)

    def __post_init__(self) -> None:
        """Raises ValueError without types, or for a type without GPUs or with a negative price."""
        if not self.types:
            raise ValueError("a catalogue has at least one node type")
        for found in self.types:
            if found.gpus < 1 or found.price_per_hour < 0:
                raise ValueError(f"node type {found.name} has no GPUs or a negative price")
        kinds = tuple(sorted({found.kind for found in self.types}))
        width = max(found.gpus for found in self.types) + 1
        smallest = np.full((len(kinds), width), -1, dtype=np.int64)
        price, room = np.zeros(smallest.shape), np.zeros(smallest.shape, dtype=np.int64)
        largest = np.zeros(len(kinds), dtype=np.int64)
        for k, kind in enumerate(kinds):
            mine = [n for n, found in enumerate(self.types) if found.kind == kind]
            largest[k] = max(mine, key=lambda n: (self.types[n].gpus, -n))
            for used in range(1, width):
                fit = [n for n in mine if self.types[n].gpus >= used]
                if fit:
                    best = min(fit, key=lambda n: (*self._thrift(n), n))
                    smallest[k, used] = best
                    price[k, used], room[k, used] = self._thrift(best)
        for name, value in (
            ("kinds", kinds),
            ("most", np.array([self.types[n].gpus for n in largest], dtype=np.int64)),
            ("largest", largest),
            ("smallest", smallest),
            ("price", price),
            ("room", room),
        ):
            object.__setattr__(self, name, value)

    def at(self, now_s: float) -> Catalogue:
        """What can be had from now on; raises ValueError if the provider has taken everything back."""
        left = tuple(found for found in self.types if found.until_s > now_s)
        return self if len(left) == len(self.types) else Catalogue(left)

    def _thrift(self, n: int) -> tuple[float, int]:
        return self.types[n].price_per_hour, self.types[n].gpus


def catalogue(rows: Sequence[tuple[str, str, int, float]]) -> Catalogue:
    """From (name, kind, GPUs, $ per hour)."""
    return Catalogue(tuple(NodeType(*row) for row in rows))
