"""The feed: one watch for many streams, nothing missed, nothing twice, and slow readers go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest
from google.protobuf.message import Message

from dlq.v1 import job_service_pb2 as wire
from dlq_common.errors import CursorExpired, Unavailable
from dlq_web.line import feed as module
from dlq_web.line.feed import MOST_UNREAD, EventFeed
from dlq_web.line.methods import PublicMethod


class Journal:
    """A master's journal that can be watched, and be away."""

    def __init__(self, count: int = 0) -> None:
        self.last = count
        self.oldest = 0
        self.away = False
        self.broken = False
        self.watches = 0
        self.grown = asyncio.Event()

    async def call(self, method: PublicMethod, request: Message, timeout_s: float = 1.0) -> Any:
        if self.away:
            raise Unavailable("away")
        return wire.ListJobsResponse(cursor=self.last)

    async def stream(self, _method: PublicMethod, request: Any) -> AsyncGenerator[Any]:
        if self.away:
            raise Unavailable("away")
        if 0 < request.cursor < self.oldest:
            raise CursorExpired("cut off")
        self.watches += 1
        told = self.last if request.cursor < 0 else request.cursor
        while True:
            while told < self.last:
                told += 1
                message = wire.WatchEventsResponse(cursor=told)
                message.event.sequence = told
                yield message
            yield wire.WatchEventsResponse(cursor=told)  # a keep-alive
            await self.grown.wait()
            await asyncio.sleep(0)
            if self.broken:
                raise ValueError("nobody has thought of this")
            if self.away:
                raise Unavailable("away")

    async def grow(self, count: int = 1) -> None:
        self.last += count
        await self.stir()

    async def stir(self) -> None:
        self.grown.set()
        await settled()
        self.grown.clear()


async def settled() -> None:
    for _ in range(200):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.0)


class Reader:
    """Reads a stream of the feed in a task of its own."""

    def __init__(self, feed: EventFeed, after: int = -1) -> None:
        self.seen: list[int] = []
        self.ended = False
        self._task = asyncio.ensure_future(self._read(feed, after))

    async def _read(self, feed: EventFeed, after: int) -> None:
        async with aclosing(feed.events(after)) as events:
            async for message in events:
                self.seen.append(message.cursor)
        self.ended = True

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


async def test_many_streams_cost_one_watch() -> None:
    journal = Journal(5)
    feed = EventFeed(journal)
    readers = [Reader(feed) for _ in range(20)]
    await settled()
    await journal.grow(2)
    assert [one.seen for one in readers] == [[6, 7]] * 20
    assert journal.watches == 1
    await feed.close()


@pytest.mark.parametrize("after", [0, 3, 5])
async def test_a_stream_that_comes_back_misses_and_repeats_nothing(after: int) -> None:
    journal = Journal(5)
    feed = EventFeed(journal)
    first = Reader(feed)
    await settled()
    reader = Reader(feed, after)
    await settled()
    await journal.grow(3)
    assert reader.seen == list(range(after + 1, 9))
    assert first.seen == [6, 7, 8]
    await feed.close()


async def test_what_is_in_memory_is_not_asked_for_again() -> None:
    journal = Journal(5)
    feed = EventFeed(journal)
    Reader(feed)
    await settled()
    await journal.grow(3)
    reader = Reader(feed, 6)
    await settled()
    assert reader.seen == [7, 8]
    assert journal.watches == 1
    await feed.close()


async def test_events_of_an_outage_come_after_it() -> None:
    journal = Journal(5)
    feed = EventFeed(journal)
    reader = Reader(feed)
    await settled()
    journal.away = True
    await journal.stir()
    journal.last = 9
    journal.away = False
    await settled()
    assert reader.seen == [6, 7, 8, 9]
    await feed.close()


async def test_an_outage_longer_than_the_journal_ends_every_stream() -> None:
    journal = Journal(5)
    feed = EventFeed(journal)
    reader = Reader(feed)
    await settled()
    await journal.grow()
    journal.away = True
    await journal.stir()
    journal.last, journal.oldest, journal.away = 50, 40, False
    await settled()
    assert reader.ended
    with pytest.raises(CursorExpired):
        await anext(feed.events(6))
    await feed.close()


async def test_a_slow_reader_is_ended_and_holds_up_nobody() -> None:
    journal = Journal()
    feed = EventFeed(journal)
    slow = feed.events()
    first = asyncio.ensure_future(anext(slow))
    quick = Reader(feed)
    await settled()
    await journal.grow()
    await first
    for _ in range(MOST_UNREAD + 2):
        await journal.grow()
    assert len(quick.seen) == MOST_UNREAD + 3
    assert [message.cursor async for message in slow] == []  # it ends
    await feed.close()


async def test_the_end_of_the_feed_ends_its_streams() -> None:
    feed = EventFeed(Journal())
    reader = Reader(feed)
    await settled()
    await feed.close()
    await settled()
    assert reader.ended


async def test_an_event_between_a_question_and_its_waiting_is_not_missed() -> None:
    journal = Journal(5)
    feed = EventFeed(journal)
    feed.mark()
    await settled()
    mark = feed.mark()
    await journal.grow()
    assert await feed.changed(mark, 0.0)
    assert not await feed.changed(feed.mark(), 0.0)
    await feed.close()


async def test_the_end_of_the_feed_ends_all_waiting() -> None:
    feed = EventFeed(Journal())
    feed.mark()
    await settled()
    waiting = asyncio.ensure_future(feed.changed(feed.mark(), 60.0))
    await settled()
    await feed.close()
    assert await asyncio.wait_for(waiting, 5.0) is False


@pytest.mark.parametrize("known", [True, False])
async def test_a_number_that_no_event_has_had_is_refused(known: bool) -> None:
    """The master has been restored from an older copy: a page would wait for ever."""
    feed = EventFeed(Journal(5))
    if known:
        feed.mark()
        await settled()
    with pytest.raises(CursorExpired, match="newest is 5"):
        await asyncio.wait_for(anext(feed.events(6)), 5.0)
    await feed.close()


async def test_a_master_that_comes_back_with_an_older_journal_ends_every_stream() -> None:
    journal = Journal(5)
    feed = EventFeed(journal)
    reader = Reader(feed)
    await settled()
    journal.away = True
    await journal.stir()
    assert [feed.away] == [True]
    journal.last, journal.away = 3, False
    await settled()
    assert reader.ended
    assert [feed.away] == [False]
    fresh = Reader(feed)
    await settled()
    await journal.grow()
    assert fresh.seen == [4]
    await feed.close()


async def test_a_fault_of_the_line_does_not_stop_the_feed() -> None:
    journal = Journal(5)
    feed = EventFeed(journal)
    reader = Reader(feed)
    await settled()
    journal.broken = True
    await journal.stir()
    assert reader.ended
    journal.broken = False
    await settled()
    fresh = Reader(feed)
    await settled()
    await journal.grow()
    assert fresh.seen == [6]
    await feed.close()


async def rounds() -> None:
    """Whatever is due happens."""
    for _ in range(50):
        await asyncio.sleep(0)


async def test_a_feed_without_readers_costs_the_master_no_stream() -> None:
    journal = Journal(5)
    feed = EventFeed(journal, idle_s=0.0)
    events = feed.events()
    coming = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    assert feed.is_watching()
    await rounds()
    assert journal.watches == 1
    await journal.grow()
    assert (await coming).cursor == 6
    await events.aclose()
    await rounds()
    assert not feed.is_watching()
    await journal.grow(3)
    async with aclosing(feed.events(after=6)) as again:
        assert [(await anext(again)).cursor for _ in range(3)] == [7, 8, 9], "none is missed"
    await feed.close()


async def test_a_feed_that_is_read_goes_on() -> None:
    journal = Journal()
    feed = EventFeed(journal, idle_s=0.0)
    async with aclosing(feed.events()) as first:
        coming = asyncio.ensure_future(anext(first))
        await rounds()
        mark = feed.mark()
        assert not await feed.changed(mark, 0.0), "one of two readers has left"
        await asyncio.sleep(0)
        assert feed.is_watching()
        await journal.grow()
        assert (await coming).cursor == 1
    await feed.close()
