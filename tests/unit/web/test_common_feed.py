"""One watch for many operators: a removed one hears nothing more, and the others miss nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

import pytest
from google.protobuf.message import Message

from dlq.v1 import job_service_pb2 as wire
from dlq.v1 import queue_service_pb2
from dlq_common.errors import TryAgain, Unauthenticated, Unavailable
from dlq_web.line import common_feed
from dlq_web.line import feed as module
from dlq_web.line.calls import MasterLine
from dlq_web.line.common_feed import CommonFeed, MemberFeed
from dlq_web.line.methods import PublicMethod


class Site:
    """A master with operators, of whom some are removed."""

    def __init__(self) -> None:
        self.last, self.version = 0, 1
        self.gone: set[str] = set()
        self.busy: set[str] = set()  # who have as much open at the master as it allows
        self.stuck: set[str] = set()  # whose calls are not answered
        self.away = False
        self.watches: list[str] = []
        self.questions: list[str] = []
        self.grown = asyncio.Event()

    def remove(self, name: str) -> None:
        self.gone.add(name)
        self.version += 1

    async def happens(self) -> None:
        """An event, and all that follows from it."""
        self.last += 1
        await self.stir()

    async def stir(self) -> None:
        self.grown.set()
        await settled()
        self.grown.clear()


class OperatorLine:
    """The line of one of them."""

    def __init__(self, site: Site, name: str) -> None:
        self._site, self.name = site, name
        self.dismissed = self.closed = False

    def gone(self) -> None:
        self.dismissed = True

    async def call(self, method: PublicMethod, _request: Message, _timeout_s: float = 1.0) -> Any:
        self._refuse()
        if method.path.endswith("ListJobs"):
            return wire.ListJobsResponse(cursor=self._site.last)
        self._site.questions.append(self.name)
        if self.name in self._site.stuck:
            await asyncio.Event().wait()
        if not self._site.stuck:  # else all others answer at once, and no time passes
            await asyncio.sleep(0)
        return queue_service_pb2.GetClusterResponse(people_version=self._site.version)

    async def stream(self, _method: PublicMethod, request: Any) -> AsyncGenerator[Any]:
        self._refuse()
        self._site.watches.append(self.name)
        told = request.cursor
        while True:
            while told < self._site.last:
                told += 1
                message = wire.WatchEventsResponse(cursor=told, people_version=self._site.version)
                message.event.sequence = told
                yield message
            await self._site.grown.wait()
            await asyncio.sleep(0)
            self._refuse()

    def _refuse(self) -> None:
        if self.closed or self._site.away:
            raise Unavailable("away")
        if self.name in self._site.gone:
            raise Unauthenticated("no such user")
        if self.name in self._site.busy:
            raise TryAgain("16 streams are open already")


class Listener:
    """A member whose stream is open."""

    def __init__(self, site: Site, common: CommonFeed, name: str, after: int = -1) -> None:
        self.line = OperatorLine(site, name)
        self.feed: MemberFeed = common.of(cast(MasterLine, self.line), site.version)
        self.seen: list[int] = []
        self.task = asyncio.ensure_future(self._read(after))

    async def _read(self, after: int) -> None:
        async with aclosing(self.feed.events(after)) as events:
            async for message in events:
                if self.line.dismissed:  # as a stream that ends with its session
                    return
                self.seen.append(message.cursor)

    async def leave(self) -> None:
        await self.feed.close()
        self.line.closed = True
        self.task.cancel()
        await asyncio.wait([self.task])


async def settled() -> None:
    for _ in range(300):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(module, "LONGEST_PAUSE_S", 0.0)


async def test_all_members_hear_by_one_watch_and_are_asked_about_no_more() -> None:
    site, common = Site(), CommonFeed()
    everybody = [Listener(site, common, f"o{number}") for number in range(20)]
    await settled()
    site.questions.clear()
    await site.happens()
    await site.happens()
    assert [one.seen for one in everybody] == [[1, 2]] * 20
    assert (len(site.watches), site.questions) == (1, [])
    await common.close()


@pytest.mark.parametrize("gone", ["o0", "o1"])
async def test_a_removed_member_hears_nothing_more_and_the_others_miss_nothing(gone: str) -> None:
    """The first one speaks for all: the watch goes on as another one's."""
    site, common = Site(), CommonFeed()
    everybody = {name: Listener(site, common, name) for name in ("o0", "o1", "o2")}
    await settled()
    await site.happens()
    site.remove(gone)
    await site.happens()
    await site.happens()
    lost = everybody.pop(gone)
    assert (lost.line.dismissed, lost.seen) == (True, [1])
    assert [one.seen for one in everybody.values()] == [[1, 2, 3]] * 2
    assert not any(one.line.dismissed for one in everybody.values())
    await common.close()


async def test_a_member_who_leaves_takes_no_event_from_the_others() -> None:
    site, common = Site(), CommonFeed()
    first, second = Listener(site, common, "o0"), Listener(site, common, "o1")
    await settled()
    await site.happens()
    await first.leave()
    await site.happens()
    await site.happens()
    assert (first.seen, second.seen) == ([1], [1, 2, 3])
    assert site.watches == ["o0", "o1"]
    await common.close()


async def test_a_member_known_at_another_number_is_asked_about_before_the_next_event() -> None:
    """The master has answered its sign-in before somebody was removed."""
    site, common = Site(), CommonFeed()
    site.last = 1
    first = Listener(site, common, "o0")
    await settled()
    late = OperatorLine(site, "o1")
    known_at = site.version
    site.remove("o1")
    await site.happens()
    common.of(cast(MasterLine, late), known_at)
    await site.happens()
    assert late.dismissed
    assert first.seen == [2, 3]
    await common.close()


async def test_the_past_is_for_those_alone_whom_the_master_still_knows() -> None:
    site, common = Site(), CommonFeed()
    site.last = 5
    first = Listener(site, common, "o0")
    await settled()
    site.gone.add("o1")
    removed, known = Listener(site, common, "o1", 2), Listener(site, common, "o2", 2)
    await settled()
    assert isinstance(removed.task.exception(), Unauthenticated)
    assert known.seen == [3, 4, 5]
    assert first.seen == removed.seen == []
    await common.close()


async def test_a_member_with_too_many_streams_takes_no_event_from_the_others() -> None:
    """The watch is opened as the first of them, whom the master allows no more streams."""
    site, common = Site(), CommonFeed()
    site.busy.add("o0")
    busy = OperatorLine(site, "o0")
    common.of(cast(MasterLine, busy), site.version)
    other = Listener(site, common, "o1")
    await settled()
    await site.happens()
    assert (other.seen, site.watches, busy.dismissed) == ([1], ["o1"], False)
    await common.close()


@pytest.mark.parametrize("how", ["busy", "stuck"])
async def test_a_member_who_cannot_be_asked_holds_nobody_up_and_misses_nothing(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, common = Site(), CommonFeed()
    everybody = [Listener(site, common, f"o{number}") for number in range(2)]
    await settled()
    await site.happens()
    slow, other = everybody
    monkeypatch.setattr(common_feed, "ASKED_S", 0.0 if how == "stuck" else 60.0)
    getattr(site, how).add("o0")
    site.remove("somebody else")
    await site.happens()
    await site.happens()
    assert (slow.seen, other.seen) == ([1], [1, 2, 3])
    assert slow.task.done(), "its stream has ended"
    assert not slow.line.dismissed, "and not its session"
    getattr(site, how).clear()
    back = asyncio.ensure_future(slow._read(1))
    await site.happens()
    assert (slow.seen, other.seen) == ([1, 2, 3, 4], [1, 2, 3, 4])
    back.cancel()
    await common.close()


async def test_after_an_absence_of_the_master_all_are_asked_and_hear_all_of_it() -> None:
    site, common = Site(), CommonFeed()
    everybody = [Listener(site, common, f"o{number}") for number in range(3)]
    await settled()
    site.away, site.version = True, 1 << 32
    await site.stir()
    assert everybody[0].feed.away
    site.questions.clear()
    site.away = False
    await site.happens()
    await settled()
    assert [one.seen for one in everybody] == [[1]] * 3
    assert sorted(set(site.questions)) == ["o0", "o1", "o2"]
    await common.close()


async def test_a_read_that_waits_ends_with_its_session_alone() -> None:
    site, common = Site(), CommonFeed()
    first, second = Listener(site, common, "o0"), Listener(site, common, "o1")
    await settled()
    reads = [
        asyncio.ensure_future(one.feed.changed(one.feed.mark(), 60.0)) for one in (first, second)
    ]
    await settled()
    await first.leave()
    await settled()
    assert [one.done() for one in reads] == [True, False]
    assert not reads[0].result()
    await site.happens()
    assert await reads[1]
    await common.close()
