"""The map of each reader, asked for once in a few seconds however many of their tabs look.

While the master is away its refusal is told: pages keep what they show, and say so.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field

from starlette.requests import HTTPConnection

from dlq.v1 import node_service_pb2 as wire
from dlq_common.clock import Clock
from dlq_web.door.sessions import line_of, person_of
from dlq_web.line.calls import Asking
from dlq_web.line.methods import named
from dlq_web.pages.machines.gpu_map import GpuMap, map_of

FRESH_S = 5.0
NODES_AT_ONCE = 1_000
MOST_NODES = 10_000
MOST_READERS = 500
_MAP = named("NodeService", "GetGpuMap")


@dataclass(slots=True)
class _Kept:
    """The last map of one reader; one request at a time asks anew."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    map: GpuMap | None = None
    asked_s: float = 0.0


class GpuMaps:
    """Maps by the name and role of their readers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()

    async def of(self, http: HTTPConnection) -> GpuMap:
        """The map as the reader may see it, at most FRESH_S old. Raises DlqError."""
        person = person_of(http)
        key = person.name, person.role
        kept = self._kept.setdefault(key, _Kept())
        self._kept.move_to_end(key)
        if len(self._kept) > MOST_READERS:
            self._kept.popitem(last=False)
        async with kept.lock:
            now_s = self._clock.boottime_s()
            if kept.map is None or now_s - kept.asked_s >= FRESH_S:
                kept.map = map_of(await _pages(line_of(http)))
                kept.asked_s = now_s
            return kept.map


async def _pages(line: Asking) -> list[wire.GetGpuMapResponse]:
    pages: list[wire.GetGpuMapResponse] = []
    request = wire.GetGpuMapRequest(page_size=NODES_AT_ONCE)
    while len(pages) * NODES_AT_ONCE < MOST_NODES:
        pages.append(await line.call(_MAP, request))
        request.page_token = pages[-1].next_page_token
        if not request.page_token:
            break
    return pages
