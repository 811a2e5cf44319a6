"""The order stage: all jobs in one line."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from dlq_master.model.order.lineup import Lineup
from dlq_master.model.view import View
from dlq_master.policy.order import by_key


class Order(Protocol):
    """`anew`: each plan sorts all jobs, in O(jobs)."""

    @property
    def anew(self) -> bool: ...

    def lineup(self, view: View, margin: float) -> Lineup:
        """All jobs in order. `margin`: running jobs are ahead by this multiple of a stop's cost."""


class KeptOrder(NamedTuple):
    """The null object: the positions that the cluster keeps, or the key of its ordering."""

    anew: bool = False

    def lineup(self, view: View, margin: float) -> Lineup:
        key = view.cluster.key
        return view.cluster.lineup if key is None else by_key.lineup(view, key, margin)


KEPT_ORDER = KeptOrder()
