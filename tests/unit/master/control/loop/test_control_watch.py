"""Who follows the journal hears of an event when what it made of its job can be read, and once."""

import asyncio

from dlq_master.control.loop.watch import Watchers
from dlq_master.model.event import JournalEvent
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
    watchers = Watchers(disk)
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
