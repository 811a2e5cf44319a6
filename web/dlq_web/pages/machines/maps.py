"""Answers of the master that are kept for some seconds, however many tabs of a reader look.

While the master is away its refusal is told: pages keep what they show, and say so.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

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
MOST_KEPT = 500
_MAP = named("NodeService", "GetGpuMap")
T = TypeVar("T")


@dataclass(slots=True)
class _Kept(Generic[T]):
    """One answer; one request at a time asks anew."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    answer: T | None = None
    asked_s: float = 0.0


class KeptAnswers(Generic[T]):
    """Answers by their readers, and by a key of their own."""

    def __init__(self, clock: Clock, fresh_s: float, most: int = MOST_KEPT) -> None:
        self._clock, self._fresh_s, self._most = clock, fresh_s, most
        self._kept: OrderedDict[Hashable, _Kept[T]] = OrderedDict()

    async def of(
        self, http: HTTPConnection, key: Hashable, ask: Callable[[Asking], Awaitable[T]]
    ) -> T:
        """The answer to the reader of this request, at most as old as said. Raises DlqError."""
        person = person_of(http)
        since_s = None if person.user is None else person.user.since_s  # of many with one name
        return await self.by((person.name, person.role, since_s, key), line_of(http), ask)

    async def by(self, whole: Hashable, line: Asking, ask: Callable[[Asking], Awaitable[T]]) -> T:
        """The same by a key that names its reader too."""
        self._drop_old()
        kept = self._kept.setdefault(whole, _Kept())
        self._kept.move_to_end(whole)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
        async with kept.lock:
            now_s = self._clock.boottime_s()
            if kept.answer is None or now_s - kept.asked_s >= self._fresh_s:
                kept.answer = await ask(line)
                kept.asked_s = now_s
            return kept.answer

    def _drop_old(self) -> None:
        """Many readers with a large answer each would fill the memory."""
        now_s = self._clock.boottime_s()
        while self._kept:
            key, oldest = next(iter(self._kept.items()))
            if oldest.lock.locked() or now_s - oldest.asked_s < self._fresh_s:
                return
            del self._kept[key]


class GpuMaps:
    """The GPU maps of readers."""

    def __init__(self, clock: Clock) -> None:
        self._kept: KeptAnswers[GpuMap] = KeptAnswers(clock, FRESH_S)

    async def of(self, http: HTTPConnection) -> GpuMap:
        """The map as the reader may see it, at most FRESH_S old. Raises DlqError."""
        return await self._kept.of(http, "map", ask_map)


async def ask_map(line: Asking) -> GpuMap:
    """The whole map, page by page."""
    pages: list[wire.GetGpuMapResponse] = []
    request = wire.GetGpuMapRequest(page_size=NODES_AT_ONCE)
    while len(pages) * NODES_AT_ONCE < MOST_NODES:
        pages.append(await line.call(_MAP, request))
        request.page_token = pages[-1].next_page_token
        if not request.page_token:
            break
    return map_of(pages)
