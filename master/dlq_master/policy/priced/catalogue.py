"""Node types that can be rented, with prices; and the cheapest node for a number of GPUs."""

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
    """A type of node that a provider rents. `price_per_hour` is in $ for a whole node.

    `boot_s`: the time from the request until it takes work. Billing starts with the request, and is
    for `minimum_billing_s` at least. `until_s`: the instant at which the provider takes such nodes
    back (available_until).
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
    """The node types, and the cheapest one for each kind k of GPU and each number u of used GPUs.

    `smallest[k, u]`: the place in `types` of the cheapest type of kind k with at least u GPUs; -1:
    none. `price[k, u]`: its price per hour; 0 for u = 0. `room[k, u]`: its GPUs. `most[k]`: the
    GPUs of the largest type of the kind. Only types that can be rented at `now_s` count; `offered`
    has their places.
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
        """ValueError: no type can be rented, or one has no GPUs or a negative price."""
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
        """The catalogue at that instant, types at the same places. ValueError: none can
        be rented.
        """
        left = sum(found.until_s > now_s for found in self.types)
        return self if left == len(self.offered) else Catalogue(self.types, now_s)

    def _thrift(self, n: int) -> tuple[float, int]:
        """The sort key of a type: cheap first, then small."""
        return self.types[n].price_per_hour, self.types[n].gpus
