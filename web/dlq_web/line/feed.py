"""One watch of the master's events for all streams of a person: pages cost the master one stream.

A stream that reads too slowly is ended, and comes back with the last number it has seen. While the
master is away nobody hears anything. Events of that time come once it is back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from itertools import dropwhile
from typing import Any

from dlq.v1 import job_service_pb2 as wire
from dlq_common.daemon.logs import get_logger
from dlq_common.errors import CursorExpired, DlqError, TryAgain, Unavailable
from dlq_web.line.calls import Asking
from dlq_web.line.methods import named

KEPT = 1_000  # events, for streams that come back
KEPT_OF_MANY = 100  # where many people have feeds
IDLE_S = 60.0  # then a feed without readers ends its watch, where many people have feeds
MOST_UNREAD = 500  # events of one stream
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0
AWAY = (Unavailable, TryAgain)
_WATCH, _LIST = named("JobService", "WatchEvents"), named("JobService", "ListJobs")


class EventFeed:
    """The events that a person may see, from the first listener on."""

    def __init__(self, line: Asking, *, kept: int = KEPT, idle_s: float | None = None) -> None:
        """`idle_s`: after so long without a reader the watch ends, until the next one comes."""
        self._line = line
        self._kept_most = kept
        self._idle_s = idle_s
        self._readers = 0  # streams, and reads that wait
        self._resting: asyncio.TimerHandle | None = None
        self._kept: deque[wire.WatchEventsResponse] = deque(maxlen=kept)
        self._listeners: set[asyncio.Queue[wire.WatchEventsResponse | None]] = set()
        self._cursor = -1  # of the last event that came; -1: none has come
        self._whole_from = -1  # every event after this one is kept; -1: unknown
        self._watch: asyncio.Task[None] | None = None
        self.away = False  # whether the master does not answer
        self.closed = False  # for good
        self._turns = 0  # how often something may have changed
        self._turned = asyncio.Event()  # a new one after each turn

    async def events(self, after: int = -1) -> AsyncGenerator[wire.WatchEventsResponse]:
        """Events after that number, -1: from now on, until the listener stops or lags behind.

        Raises CursorExpired when the journal no longer has them, and for a number that no event
        has had yet: read the state anew.
        """
        mine: asyncio.Queue[wire.WatchEventsResponse | None] = asyncio.Queue(MOST_UNREAD)
        self._listeners.add(mine)
        self._enter()
        try:
            last = after
            if after >= 0:
                async with aclosing(self._past(after)) as past:
                    async for message in past:
                        last = message.cursor
                        yield message
            while (fresh := await mine.get()) is not None:
                if fresh.cursor > last:
                    yield fresh
        finally:
            self._listeners.discard(mine)
            self._leave()

    def is_watching(self) -> bool:
        """Whether it has a watch of the master open."""
        return self._watch is not None

    def mark(self) -> int:
        """A mark for `changed`, to be made before the master is asked: no event is missed then."""
        self._enter()
        self._leave()
        return self._turns

    async def changed(self, mark: int, timeout_s: float) -> bool:
        """Whether anything happened since that mark, or happens within the time."""
        self._enter()
        try:
            async with asyncio.timeout(timeout_s):
                while self._turns == mark and not self.closed:
                    await self._turned.wait()
        except TimeoutError:
            return False
        finally:
            self._leave()
        return not self.closed

    async def close(self) -> None:
        """End the watch, every stream, and everybody's waiting."""
        self.closed = True
        self._stay()
        self._turn()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        for mine in list(self._listeners):
            self._end(mine)

    def _enter(self) -> None:
        self._readers += 1
        self._stay()
        if self._watch is None and not self.closed:
            self._watch = asyncio.create_task(self._run())

    def _leave(self) -> None:
        self._readers -= 1
        if not self._readers and self._idle_s is not None and not self.closed:
            self._stay()
            self._resting = asyncio.get_running_loop().call_later(self._idle_s, self._rest)

    def _stay(self) -> None:
        if self._resting is not None:
            self._resting.cancel()
            self._resting = None

    def _rest(self) -> None:
        """Nobody has read for long: the master has one stream less."""
        self._resting = None
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._forget()

    async def _past(self, after: int) -> AsyncGenerator[wire.WatchEventsResponse]:
        """Events after that number up to those that the feed keeps, and these. They are asked for
        again where the master is away meanwhile.
        """
        await self._check(after)
        last = after
        while not 0 <= self._whole_from <= last:
            try:
                async with aclosing(self._asked(last)) as asked:
                    async for message in asked:
                        last = message.cursor
                        if message.HasField("event"):
                            yield message
                        if 0 <= self._whole_from <= last:
                            break
            except AWAY:
                await asyncio.sleep(FIRST_PAUSE_S)
        for message in list(dropwhile(lambda one: one.cursor <= last, self._kept)):
            yield message

    async def _check(self, after: int) -> None:
        """Refuse a number from before the master was restored from an older copy."""
        while after > self._cursor:
            try:
                if after > (newest := await self._newest()):
                    raise CursorExpired(
                        f"event {after} has not happened: the newest is {newest}",
                        hint="read the state anew, then watch from now on",
                        newest=newest,
                    )
                return
            except AWAY:
                await asyncio.sleep(FIRST_PAUSE_S)

    async def _asked(self, cursor: int) -> AsyncGenerator[wire.WatchEventsResponse]:
        request = wire.WatchEventsRequest(cursor=cursor, gathered=True)
        async with aclosing(self._line.stream(_WATCH, request)) as messages:
            async for message in messages:
                yield message
                for more in message.more:
                    yield more

    async def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                newest = await self._newest()
                self.away = False
                if newest < self._cursor:
                    self._forget()  # the master has been restored from an older copy
                if self._cursor < 0:
                    self._cursor = self._whole_from = newest
                    self._turn()
                async with aclosing(self._asked(self._cursor)) as asked:
                    async for message in asked:
                        pause_s = FIRST_PAUSE_S
                        self._take(message)
            except AWAY:
                self.away = True  # its events are asked for once it is back
            except DlqError:
                self._forget()  # cut off, or not for this person any more
            except Exception as error:  # noqa: BLE001 - else every page would stand still for ever
                get_logger("web").error("watch_failed", exc_info=error)
                self._forget()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _newest(self) -> int:
        """The number of the newest event."""
        answer = await self._line.call(_LIST, wire.ListJobsRequest(page_size=1))
        return int(answer.cursor)

    def _take(self, message: wire.WatchEventsResponse) -> None:
        self._cursor = max(self._cursor, message.cursor)
        if not message.HasField("event"):
            return
        if len(self._kept) == self._kept_most:
            self._whole_from = self._kept[0].cursor
        self._kept.append(message)
        self._turn()
        for mine in list(self._listeners):
            try:
                mine.put_nowait(message)
            except asyncio.QueueFull:
                self._end(mine)

    def _forget(self) -> None:
        """Every stream ends, and its reader learns the cause when it comes back."""
        self._cursor = self._whole_from = -1
        self._kept.clear()
        self._turn()
        for mine in list(self._listeners):
            self._end(mine)

    def _turn(self) -> None:
        self._turns += 1
        turned, self._turned = self._turned, asyncio.Event()
        turned.set()

    def _end(self, mine: asyncio.Queue[Any]) -> None:
        self._listeners.discard(mine)
        while not mine.empty():
            mine.get_nowait()
        mine.put_nowait(None)
