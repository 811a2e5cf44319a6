"""The latest pages of the GPU map, shared by their readers.

A page of a thousand nodes takes the loop some 25 to 70 ms, and many people look at it. It is the
same for all readers but for their own jobs, so readers within five seconds share it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dlq.v1 import node_service_pb2 as wire
from dlq_common.clock import Clock
from dlq_master.model.ids import AttemptKey

KEPT_S: Final = 5.0
MOST_PAGES: Final = 64


class MapPage(NamedTuple):
    """A page, which is never changed, with the attempt and the user of each of its leases."""

    response: wire.GetGpuMapResponse
    keys: Sequence[AttemptKey]
    users: Sequence[str]


@dataclass(slots=True)
class _KeptPage:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    page: MapPage | None = None
    made_s: float = 0.0


class SharedMaps:
    """The pages. Used in the event loop's thread only; a restarted master has none."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[Hashable, _KeptPage] = {}

    async def page(self, key: Hashable, make: Callable[[], Awaitable[MapPage]]) -> MapPage:
        """The page of this key, at most KEPT_S old. One caller makes it while the others wait."""
        if key not in self._kept and len(self._kept) >= MOST_PAGES:
            self._kept.clear()
        kept = self._kept.setdefault(key, _KeptPage())
        async with kept.lock:
            now_s = self._clock.boottime_s()
            if kept.page is None or now_s - kept.made_s >= KEPT_S:
                kept.page = await make()
                kept.made_s = now_s
            return kept.page
