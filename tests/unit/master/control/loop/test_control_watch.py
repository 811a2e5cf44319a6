"""Who follows the journal hears of an event when what it made of its job can be read, and once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from unittest.mock import patch

from dlq_master.control.loop.watch import (
    BACKLOG,
    BROAD_AT_ONCE,
    EVERYTHING,
    GATHERED,
    WOKEN_AT_ONCE,
    Interest,
    Subscription,
    Watchers,
)
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import JobId
from dlq_master.store.batch import Batch
from support.memory_store import MemoryStore


def noted(seq: int) -> JournalEvent:
    return JournalEvent(kind="node_noted", time_s=float(seq), seq=seq)


async def test_what_is_written_but_not_yet_told_is_heard_when_it_is_told() -> None:
    """Between a commit and its publication the third event is on disk, and its job still what it
    was.
    """
    disk = MemoryStore()
    await disk.commit(Batch(events=[noted(1), noted(2), noted(3)]))
    watchers = Watchers(disk, lambda _: "")
    watchers.last = 2
    source = aiter(watchers.subscribe(0, 2))
    assert [(await anext(source)).seq for _ in range(2)] == [1, 2]
    third = asyncio.ensure_future(anext(source))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not third.done()
    watchers.publish([noted(3)])
    assert (await third).seq == 3
    fourth = asyncio.ensure_future(anext(source))
    await asyncio.sleep(0)
    await disk.commit(Batch(events=[noted(4)]))
    watchers.publish([noted(4)])
    assert (await fourth).seq == 4


def of_job(seq: int, job_id: int) -> JournalEvent:
    return JournalEvent(kind="job_noted", time_s=float(seq), seq=seq, job_id=JobId(job_id))


async def test_a_turn_wakes_only_readers_that_want_what_happened_in_it() -> None:
    disk = MemoryStore()
    watchers = Watchers(disk, lambda job_id: "alice" if job_id < 100 else "bob")
    interests = {
        "all": EVERYTHING,
        "bob": Interest(user="bob"),
        **{str(number): Interest(frozenset((JobId(number),))) for number in range(200)},
    }
    heard: dict[str, list[int]] = {name: [] for name in interests}
    woken = 0

    async def read(name: str) -> None:
        async for event in watchers.subscribe(0, 0, interests[name]):
            heard[name].append(event.seq)

    readers = [asyncio.create_task(read(name)) for name in interests]
    await asyncio.sleep(0.0)
    wake = Subscription.wake

    def counted(self: Subscription) -> None:
        nonlocal woken
        woken += 1
        wake(self)

    with patch.object(Subscription, "wake", counted):
        watchers.publish([of_job(1, 7), of_job(2, 150), of_job(3, 7)])
    assert woken == 4, "everything, bob's, and of each of the two jobs"
    await asyncio.sleep(0.0)
    assert {name: seqs for name, seqs in heard.items() if seqs} == {
        "all": [1, 2, 3], "bob": [2], "7": [1, 3], "150": [2],
    }  # fmt: skip
    for one in readers:
        one.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    with patch.object(Subscription, "wake", counted):
        watchers.publish([of_job(4, 7)])
    assert woken == 4


async def test_the_past_is_sifted_too_and_a_reader_that_waits_has_seen_all_of_it() -> None:
    disk = MemoryStore()
    await disk.commit(Batch(events=[of_job(1, 7), of_job(2, 150), noted(3)]))
    watchers = Watchers(disk, lambda job_id: "alice" if job_id < 100 else "bob")
    watchers.last = 3
    stream = watchers.subscribe(0, 3, Interest(user="bob"))
    source = aiter(stream)
    assert (await anext(source)).seq == 2
    coming = asyncio.ensure_future(anext(source))
    await asyncio.sleep(0.0)
    assert stream.seen == 3
    watchers.publish([of_job(4, 7)])
    await asyncio.sleep(0.0)
    assert (stream.seen, coming.done()) == (4, False)
    watchers.publish([of_job(5, 150)])
    assert (await coming).seq == 5


async def test_a_thousand_readers_of_one_job_are_woken_a_few_in_each_round() -> None:
    disk, heard = MemoryStore(), list[int]()
    watchers = Watchers(disk, lambda _: "")

    async def read() -> None:
        async for event in watchers.subscribe(0, 0, Interest(frozenset((JobId(7),)))):
            heard.append(event.seq)

    readers = [asyncio.create_task(read()) for _ in range(1_000)]
    await asyncio.sleep(0.0)
    watchers.publish([of_job(1, 7)])
    watchers.publish([of_job(2, 7)])
    rounds, most = 0, 0
    while len(heard) < 2_000:
        before = len(heard)
        await asyncio.sleep(0.0)
        rounds, most = rounds + 1, max(most, len(heard) - before)
    assert most <= 2 * WOKEN_AT_ONCE, "each is told both events at once"
    assert rounds >= 1_000 / WOKEN_AT_ONCE
    watchers.publish([of_job(3, 7)])
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    assert len(heard) < 3_000, "those that have gone are not woken"


@asynccontextmanager
async def following(
    watchers: Watchers, count: int, *, gathered: bool = True
) -> AsyncIterator[list[list[list[int]]]]:
    """So many readers of everything: what each of them is told, message by message."""
    told: list[list[list[int]]] = [[] for _ in range(count)]

    async def read(messages: list[list[int]]) -> None:
        with watchers.subscribe(-1, watchers.last, gathered=gathered) as stream:
            while True:
                messages.append([event.seq for event in await stream.more()])

    readers = [asyncio.create_task(read(messages)) for messages in told]
    await asyncio.sleep(0.0)
    yield told
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)


async def until_all(told: list[list[list[int]]], count: int) -> None:
    async with asyncio.timeout(60.0):
        while any(sum(map(len, messages)) < count for messages in told):  # noqa: ASYNC110 - rounds
            await asyncio.sleep(0.0)


async def test_readers_of_everything_get_so_many_messages_however_much_happens() -> None:
    watchers = Watchers(MemoryStore(), lambda _: "", per_s=1e-6)
    async with following(watchers, 1_000) as told:
        for seq in range(1, 101):
            watchers.publish([of_job(seq, seq)])
            await asyncio.sleep(0.0)
        assert sum(map(len, told)) == BROAD_AT_ONCE, "the next ones only after the pause"


async def test_a_job_s_own_reader_does_not_wait_behind_those_of_everything() -> None:
    watchers, heard = Watchers(MemoryStore(), lambda _: "", per_s=1e-6), list[int]()

    async def wait_for_it() -> None:
        async for event in watchers.subscribe(-1, 0, Interest(frozenset((JobId(7),)))):
            heard.append(event.seq)

    async with following(watchers, 1_000):
        waiting = asyncio.create_task(wait_for_it())
        await asyncio.sleep(0.0)
        watchers.publish([of_job(1, 6), of_job(2, 7)])
        await asyncio.sleep(0.0)
        assert heard == [2]
        waiting.cancel()


async def test_what_happens_before_a_reader_s_next_message_is_told_in_it() -> None:
    count = 3 * GATHERED
    watchers = Watchers(MemoryStore(), lambda _: "", per_s=1e9)
    async with following(watchers, 50) as told:
        watchers.publish([of_job(seq, seq) for seq in range(1, count + 1)])
        await until_all(told, count)
        whole = [[*range(first, first + GATHERED)] for first in range(1, count, GATHERED)]
        assert all(messages == whole for messages in told), "all of them get the same messages"
        watchers.publish([of_job(count + 1, 1)])
        watchers.publish([of_job(count + 2, 1)])
        await until_all(told, count + 2)
        assert all(messages[3] == [count + 1, count + 2] for messages in told[BROAD_AT_ONCE:])
    assert not watchers._by_key, "nothing is kept for those that have gone"


async def test_a_reader_of_events_one_by_one_counts_as_many_messages() -> None:
    watchers = Watchers(MemoryStore(), lambda _: "", per_s=1e-6)
    async with following(watchers, 100, gathered=False) as told:
        watchers.publish([of_job(seq, seq) for seq in range(1, BROAD_AT_ONCE + 1)])
        await asyncio.sleep(0.0)
        assert sum(map(len, told)) == 1, "its messages are all that may be sent by now"


async def test_a_reader_that_is_busy_with_its_line_takes_no_place_of_others() -> None:
    watchers = Watchers(MemoryStore(), lambda _: "", per_s=1e9)
    with ExitStack() as busy:
        for _ in range(1_000):  # none of them ever comes back
            busy.enter_context(watchers.subscribe(-1, 0))
        async with following(watchers, 1) as told:
            watchers.publish([of_job(1, 1)])
            assert not watchers._broad, "nobody is left to be woken"
            await asyncio.sleep(0.0)
            assert told == [[[1]]]


async def test_who_comes_back_with_a_late_cursor_reads_no_disk_while_memory_has_it() -> None:
    watchers = Watchers(MemoryStore(), lambda _: "", per_s=1e9)
    async with following(watchers, 1) as told:
        watchers.publish([of_job(seq, seq) for seq in (1, 2, 3)])
        await until_all(told, 3)
        with watchers.subscribe(1, 3) as late:
            assert [event.seq for event in await late.more()] == [2, 3]


async def test_a_reader_that_sleeps_keeps_no_more_than_a_backlog() -> None:
    disk = MemoryStore()
    watchers = Watchers(disk, lambda _: "")
    source = aiter(watchers.subscribe(0, 0))
    first = asyncio.ensure_future(anext(source))
    await asyncio.sleep(0.0)
    events = [of_job(seq, 7) for seq in range(1, BACKLOG + 3)]
    await disk.commit(Batch(events=events))
    for event in events:
        watchers.publish([event])
    (feed,) = watchers._by_key[""]
    assert len(feed._events) <= BACKLOG
    assert (await first).seq == 1
    assert [(await anext(source)).seq for _ in range(3)] == [2, 3, 4]
