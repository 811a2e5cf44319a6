"""Days of UTC, and spans of them, as requests name them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from math import floor
from typing import Protocol, Self, TypeVar

from dlq.v1 import usage_service_pb2 as wire
from dlq_common.errors import InvalidRequest
from dlq_common.text.wire import said
from dlq_master.model.usage.accounting import DAY_S

MOST_DAYS = 3660


class _Adds(Protocol):
    def __add__(self, other: Self, /) -> Self: ...


V = TypeVar("V", bound=_Adds)


def day_words(day: int) -> str:
    """A day of UTC, as 2026-11-22."""
    return datetime.fromtimestamp(day * DAY_S, UTC).strftime("%Y-%m-%d")


def days_of(request: wire.GetUsageRequest | wire.GetCostsRequest, now_s: float) -> tuple[int, int]:
    """The first and the last day that are asked for; none in the future. Raises InvalidRequest."""
    from_s, until_s = said(request, "from_time"), said(request, "until_time")
    last = floor(min(now_s if until_s is None else until_s, now_s) / DAY_S)
    first = floor((now_s if from_s is None else from_s) / DAY_S)
    if first > last:
        raise InvalidRequest("it ends before it begins, or begins in the future", field="from_time")
    if last - first >= MOST_DAYS:
        first = last - MOST_DAYS + 1
    return first, last


def by_pool(
    told: Mapping[tuple[int, str], V], none: V, *, by_day: bool
) -> list[tuple[str, str, V]]:
    """Day in words ("": all of them), pool, and their sum; rising. `none`: the sum of nothing."""
    found: dict[tuple[str, str], V] = {}
    for (day, pool), one in told.items():
        key = day_words(day) if by_day else "", pool
        found[key] = found.get(key, none) + one
    return [(*key, found[key]) for key in sorted(found)]


def groups_of(told: Iterable[str], known: Collection[str]) -> Sequence[str]:
    """The keys of the groups, each once. Raises InvalidRequest for a word that is not known."""
    by = list(dict.fromkeys(told))
    unknown = [word for word in by if word not in known]
    if unknown:
        words = ", ".join(known)
        raise InvalidRequest(f"no groups are made by {unknown[0][:64]!r}", field="by", hint=words)
    return by
