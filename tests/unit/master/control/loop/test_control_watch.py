"""Who follows the journal hears of an event when what it made of its job can be read, and once."""

import asyncio
from collections.abc import Sequence
from unittest.mock import patch

from dlq_master.control.loop.watch import (
    BACKLOG,
    EVERYTHING,
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
    pushed = 0

    async def read(name: str) -> None:
        async for event in watchers.subscribe(0, 0, interests[name]):
            heard[name].append(event.seq)

    readers = [asyncio.create_task(read(name)) for name in interests]
    await asyncio.sleep(0.0)
    push = Subscription.push

    def counted(self: Subscription, events: Sequence[JournalEvent]) -> None:
        nonlocal pushed
        pushed += 1
        push(self, events)

    with patch.object(Subscription, "push", counted):
        watchers.publish([of_job(1, 7), of_job(2, 150), of_job(3, 7)])
    assert pushed == 4, "everything, bob's, and of each of the two jobs"
    await asyncio.sleep(0.0)
    assert {name: seqs for name, seqs in heard.items() if seqs} == {
        "all": [1, 2, 3], "bob": [2], "7": [1, 3], "150": [2],
    }  # fmt: skip
    for one in readers:
        one.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    with patch.object(Subscription, "push", counted):
        watchers.publish([of_job(4, 7)])
    assert pushed == 4


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


async def test_a_thousand_readers_of_one_event_are_woken_a_few_in_each_round() -> None:
    disk, heard = MemoryStore(), list[int]()
    watchers = Watchers(disk, lambda _: "")

    async def read() -> None:
        async for event in watchers.subscribe(0, 0):
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
    (reader,) = watchers._by_key[""]
    assert len(reader._live) <= BACKLOG
    assert (await first).seq == 1
    assert [(await anext(source)).seq for _ in range(3)] == [2, 3, 4]
