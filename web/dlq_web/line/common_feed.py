"""One watch of the master for all who are told of every event in full, such as operators.

The watch is opened as one of them. Each of its messages has a number that changes when any user was
removed or got another role, or a right has ended (`people_version`). After such a change the master
is asked for each member before the message goes on. So a removed member hears nothing more, as on a
watch of its own. A member who cannot be asked in time holds nobody up: their streams end, and come
back once the master has answered for them.

After a start of the master the number is another one, and all are asked anew. While it is away
nobody hears anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from google.protobuf.message import Message

from dlq.v1 import job_service_pb2 as wire
from dlq.v1 import queue_service_pb2
from dlq_client.line.connection import CALL_DEADLINE_S
from dlq_common.errors import PermissionDenied, TryAgain, Unauthenticated, Unavailable
from dlq_web.line import feed as feeds
from dlq_web.line.calls import MasterLine
from dlq_web.line.feed import AWAY, EventFeed
from dlq_web.line.methods import PublicMethod, named

ASKED_AT_ONCE = 16  # members, after a change
ASKED_S = 5.0  # for one of them; calls of the same person may be in front
REFUSALS = (Unauthenticated, PermissionDenied)
_GET_CLUSTER = named("QueueService", "GetCluster")


class CommonLine:
    """The lines of all members; the first of them asks, and each may hear the answer."""

    def __init__(self) -> None:
        self._known: dict[MasterLine, int] = {}  # at which number the master knew each member
        self._checking = asyncio.Lock()

    def add(self, line: MasterLine, version: int) -> None:
        """The master has told a member this number."""
        self._known[line] = version

    def has(self, line: MasterLine) -> bool:
        """Whether the master knew this member when it was asked last."""
        return line in self._known

    async def drop(self, line: MasterLine) -> None:
        """The member leaves. Nothing is asked on its line any more."""
        async with self._checking:
            self._known.pop(line, None)

    async def call(
        self, method: PublicMethod, request: Message, timeout_s: float = CALL_DEADLINE_S
    ) -> Any:
        """The answer for the first member. Unavailable: the next one is to be asked."""
        line = self._first()
        try:
            return await line.call(method, request, timeout_s)
        except REFUSALS:
            raise self._next_one(line) from None
        except TryAgain:
            self._to_the_end(line)
            raise

    async def stream(self, method: PublicMethod, request: Message) -> AsyncGenerator[Any]:
        """The messages for the first member. Each comes once all members are known at its number.
        Unavailable: the next one is to be asked.
        """
        line = self._first()
        try:
            async with aclosing(line.stream(method, request)) as messages:
                async for message in messages:
                    await self._check(message.people_version)
                    yield message
        except REFUSALS:
            raise self._next_one(line) from None
        except TryAgain:
            self._to_the_end(line)
            raise

    def _first(self) -> MasterLine:
        for line in self._known:
            return line
        raise Unavailable("nobody is left who may hear this")

    def _next_one(self, line: MasterLine) -> Unavailable:
        self._dismiss(line)
        return Unavailable("the master has refused this member, and the next one is asked")

    def _to_the_end(self, line: MasterLine) -> None:
        """This member has too much open at the master: another one asks the next time."""
        if line in self._known:
            self._known[line] = self._known.pop(line)

    def _dismiss(self, line: MasterLine) -> None:
        self._known.pop(line, None)
        line.gone()

    async def _check(self, version: int) -> None:
        """Dismiss members whom the master knows no more. Unavailable: it could not be asked."""
        async with self._checking:
            while stale := [line for line, known in self._known.items() if known != version]:
                asked = [self._ask(line, version) for line in stale[:ASKED_AT_ONCE]]
                await asyncio.gather(*asked)

    async def _ask(self, line: MasterLine, version: int) -> None:
        try:
            async with asyncio.timeout(ASKED_S):
                told = await line.call(_GET_CLUSTER, queue_service_pb2.GetClusterRequest())
        except REFUSALS:
            self._dismiss(line)
            return
        except (TryAgain, TimeoutError):
            self._known.pop(line, None)
            return
        if not told.people_version:
            self._dismiss(line)
        elif line in self._known:
            self._known[line] = version


class CommonFeed:
    """The members' one feed."""

    def __init__(self) -> None:
        self._line = CommonLine()
        self.feed = EventFeed(self._line, idle_s=feeds.IDLE_S)

    def of(self, line: MasterLine, version: int) -> MemberFeed:
        """The feed of a new member, whom the master has told this number by its line."""
        self._line.add(line, version)
        return MemberFeed(line, self._line, self.feed)

    async def close(self) -> None:
        """End the watch."""
        await self.feed.close()


class MemberFeed:
    """The common feed as one member hears it, until the member's session ends."""

    def __init__(self, line: MasterLine, members: CommonLine, feed: EventFeed) -> None:
        self._line, self._members, self._feed = line, members, feed
        self._waiting: set[asyncio.Task[bool]] = set()
        self.closed = False  # for good

    @property
    def away(self) -> bool:
        """Whether the master does not answer."""
        return self._feed.away

    async def events(self, after: int = -1) -> AsyncGenerator[wire.WatchEventsResponse]:
        """As of the feed. The past is for members alone, so the master is asked first."""
        await self._enter()
        async with aclosing(self._feed.events(after)) as events:
            async for message in events:
                if self.closed or not self._members.has(self._line):
                    return
                yield message

    def mark(self) -> int:
        """As of the feed."""
        return self._feed.mark()

    async def changed(self, mark: int, timeout_s: float) -> bool:
        """As of the feed; False at the end of the session."""
        waiting = asyncio.ensure_future(self._feed.changed(mark, timeout_s))
        self._waiting.add(waiting)
        try:
            await asyncio.wait([waiting])
        finally:
            self._waiting.discard(waiting)
            waiting.cancel()
        return not waiting.cancelled() and waiting.result()

    async def close(self) -> None:
        """The session has ended."""
        self.closed = True
        for waiting in self._waiting:
            waiting.cancel()
        await self._members.drop(self._line)

    async def _enter(self) -> None:
        while True:
            try:
                told = await self._line.call(_GET_CLUSTER, queue_service_pb2.GetClusterRequest())
                if told.people_version and not self.closed:
                    self._members.add(self._line, told.people_version)
                return
            except AWAY:
                await asyncio.sleep(feeds.FIRST_PAUSE_S)
