"""Answers that are kept for some seconds, however many tabs look, and that are sent once to each.

While the master is away its refusal is told: pages keep what they show, and say so.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from dlq_common.clock import Clock
from dlq_web.door.sessions import line_of, person_of
from dlq_web.line.calls import Asking

MOST_KEPT = 500
WORTH_PACKING = 1_024  # bytes
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


def tagged(http: Request, body: bytes) -> Response:
    """JSON with its tag, packed where the reader takes that; 304 for what it has already."""
    tag = f'"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
    headers = {"ETag": tag, "Vary": "Accept-Encoding"}
    known = http.headers.get("if-none-match", "").split(",")
    if tag in {one.strip().removeprefix("W/") for one in known}:
        return Response(status_code=304, headers=headers)
    if len(body) >= WORTH_PACKING and "gzip" in http.headers.get("accept-encoding", ""):
        body, headers["Content-Encoding"] = gzip.compress(body, 1, mtime=0), "gzip"
    return Response(body, media_type="application/json", headers=headers)
