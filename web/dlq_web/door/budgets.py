"""Budgets: so many acts a second and some more at once, for each person or each address.

The memory is bounded. The budget that was asked least lately makes way, and is full again then.
"""

from __future__ import annotations

from collections import OrderedDict
from ipaddress import IPv6Address, ip_address

from dlq_common.clock import Clock
from dlq_common.errors import TryAgain

MOST_KEYS = 10_000
_PREFIX_BITS = 64  # of an IPv6 address: one host has all the rest


class Budgets:
    """One budget for each key."""

    def __init__(self, what: str, clock: Clock, *, each_second: float, at_once: float) -> None:
        """`what`: the limit's name, as refusals tell it."""
        self._what = what
        self._clock = clock
        self._each_second, self._at_once = each_second, at_once
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # and by when

    def take(self, key: str) -> None:
        """One act. TryAgain when nothing is left."""
        if (left := self._now(key)) < 1:
            wait_s = max(1, round((1 - left) / self._each_second)) if self._each_second else 1
            raise TryAgain(
                f"too many {self._what} at once",
                hint=f"ask again in {wait_s} s",
                limit=self._what,
                retry_after_s=wait_s,
            )
        self._left[key] = (left - 1, self._clock.boottime_s())
        self._left.move_to_end(key)
        if len(self._left) > MOST_KEYS:
            self._left.popitem(last=False)

    def _now(self, key: str) -> float:
        now_s = self._clock.boottime_s()
        left, at_s = self._left.get(key, (self._at_once, now_s))
        return min(self._at_once, left + self._each_second * (now_s - at_s))


def address_key(address: str) -> str:
    """The part of an address that stands for one host; the address itself where it is none."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return f"{found.packed[: _PREFIX_BITS // 8].hex()}/{_PREFIX_BITS}"
    return str(found)
