"""Node types with prices that can be rented, and the cost of a node for the GPUs used of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dlq_master.model.late import np

if TYPE_CHECKING:
    from numpy.typing import NDArray


Ints: TypeAlias = "NDArray[np.int64]"
Floats: TypeAlias = "NDArray[np.float64]"
Bools: TypeAlias = "NDArray[np.bool_]"


class NodeType(NamedTuple):
    """A machine that a provider rents; the price is for one whole node, $ per hour.

    `boot_s`: from when it is asked for until it takes work; both are billed, `minimum_billing_s` at
    least. `until_s`: the instant at which the provider takes such nodes back (available_until).
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
    """`smallest[k, u]`: the cheapest type of kind k with at least u GPUs, by its place in `types`;
    -1: none.

    `price[k, u]` is its price per hour (0 for u = 0) and `room[k, u]` its GPUs; `most[k]` the GPUs
    of the largest type of the kind. Only what can be had at `now_s` counts: the places of
    `offered`.
    """

    types: tuple[NodeType, ...]
    now_s: float = -inf
    offered: tuple[int, ...] = field(init=False)
    kinds: tuple[str, ...] = field(init=False)
    most: Ints = field(init=False)
    smallest: Ints = field(init=False)
    price: Floats = field(init=False)
    room: Ints = field(init=False)

    def __post_init__(self) -> None:
        """Raises ValueError without types that can be had, or for one without GPUs or with a
        negative price.
        """
        offered = tuple(n for n, found in enumerate(self.types) if found.until_s > self.now_s)
        if not offered:
            raise ValueError("a catalogue has at least one node type")
        for found in self.types:
            if found.gpus < 1 or found.price_per_hour < 0:
                raise ValueError(f"node type {found.name} has no GPUs or a negative price")
        kinds = tuple(sorted({found.kind for found in self.types}))
        width = max(found.gpus for found in self.types) + 1
        smallest = np.full((len(kinds), width), -1, dtype=np.int64)
        price, room = np.zeros(smallest.shape), np.zeros(smallest.shape, dtype=np.int64)
        most = np.zeros(len(kinds), dtype=np.int64)
        for k, kind in enumerate(kinds):
            mine = [n for n in offered if self.types[n].kind == kind]
            most[k] = max((self.types[n].gpus for n in mine), default=0)
            for used in range(1, width):
                fit = [n for n in mine if self.types[n].gpus >= used]
                if fit:
                    best = min(fit, key=lambda n: (*self._thrift(n), n))
                    smallest[k, used] = best
                    price[k, used], room[k, used] = self._thrift(best)
        for name, value in (
            ("offered", offered),
            ("kinds", kinds),
            ("most", most),
            ("smallest", smallest),
            ("price", price),
            ("room", room),
        ):
            object.__setattr__(self, name, value)

    def at(self, now_s: float) -> Catalogue:
        """The types at that instant, each at the same place; ValueError if nothing can."""
        left = sum(found.until_s > now_s for found in self.types)
        return self if left == len(self.offered) else Catalogue(self.types, now_s)

    def _thrift(self, n: int) -> tuple[float, int]:
        return self.types[n].price_per_hour, self.types[n].gpus
