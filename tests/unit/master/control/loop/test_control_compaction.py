"""The journal is cut a little at a time, and whoever would miss something of it is told."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from dlq_common.daemon.config import Seconds
from dlq_common.errors import CursorExpired, Unavailable
from dlq_master.control.config import MasterConfig, RetentionConfig
from dlq_master.control.loop.compaction import (
    FIRST_SLICE,
    LARGEST_SLICE,
    SHORTEST_PAUSE_S,
    SMALLEST_SLICE,
    compact,
    next_size,
)
from dlq_master.control.loop.inbox import Envelope
from dlq_master.control.stimuli import CancelJob, Tick
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.store.batch import HORIZON, Batch
from support.fake_clock import FakeClock
from support.master_harness import ALICE, Master, config_of
from support.memory_store import MemoryStore

RETENTION = RetentionConfig(journal_kept=Seconds(100.0), journal_most=1_000_000)


def events(count: int, *, first: int = 1) -> list[JournalEvent]:
    """Of no job, one a second."""
    return [
        JournalEvent(kind="node_noted", time_s=float(seq), seq=seq)
        for seq in range(first, first + count)
    ]


class Slow(MemoryStore):
    """A store that takes its time for a slice."""

    def __init__(self, clock: FakeClock, took_s: float) -> None:
        super().__init__()
        self.slices: list[int] = []
        self._clock, self._took_s = clock, took_s

    async def prune_journal(self, sequences: Sequence[int], horizon: int) -> None:
        await super().prune_journal(sequences, horizon)
        self.slices.append(len(sequences))
        self._clock.advance(self._took_s)


async def cut(
    store: MemoryStore, clock: FakeClock, retention: RetentionConfig = RETENTION, horizon: int = 0
) -> tuple[int, list[int], list[float]]:
    """How many events went, where the horizon was moved to, and the pauses."""
    moved: list[int] = []
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    count = await compact(store, store, retention, clock, horizon, moved.append, pause)
    return count, moved, pauses


def a_clock(now_s: float) -> FakeClock:
    clock = FakeClock()
    clock.advance(now_s - clock.now_s())
    return clock


async def test_what_is_older_than_the_time_goes_in_slices_with_pauses() -> None:
    clock = FakeClock()
    store = Slow(clock, 0.001)
    first_s = clock.now_s() - 1_000
    store.write(Batch(events=[replace(e, time_s=first_s + e.seq) for e in events(1_000)]))
    count, moved, pauses = await cut(store, clock)

    assert count == 899, "the newest hundred, and the one that is exactly as old, stay"
    assert [event.seq for event in store.events(0, 2_000)] == list(range(900, 1_001))
    assert set(moved) == {899}
    assert store.load().meta[HORIZON] == "899"
    assert store.slices[0] == FIRST_SLICE
    assert len(pauses) == len(store.slices)
    assert min(pauses) == SHORTEST_PAUSE_S


async def test_slices_shrink_when_the_disk_is_slow_and_leave_it_most_of_the_time() -> None:
    clock = FakeClock()
    store = Slow(clock, 0.05)
    store.write(Batch(events=[replace(e, time_s=clock.now_s() - 500) for e in events(400)]))
    _, _, pauses = await cut(store, clock)

    assert store.slices[:4] == [100, 50, 25, SMALLEST_SLICE]
    assert min(pauses) >= 20 * 0.05 - 1e-6


async def test_lists_of_steps_go_with_the_story_of_their_jobs() -> None:
    store, clock = MemoryStore(), FakeClock()
    for number in range(1, 51):
        key = AttemptKey(JobId(number), 1)
        store.step_lists[key] = clock.now_s() - (200.0 if number <= 45 else 50.0)
    _, _, pauses = await cut(store, clock)
    assert sorted(key.job_id for key in store.step_lists) == [46, 47, 48, 49, 50]
    assert pauses == [SHORTEST_PAUSE_S] * 3


def test_slices_grow_up_to_a_limit_while_they_are_quick() -> None:
    size = FIRST_SLICE
    for _ in range(50):
        size = next_size(size, 0.0001)
    assert size == LARGEST_SLICE


async def test_only_the_newest_of_very_many_are_kept() -> None:
    store, clock = MemoryStore(), FakeClock()
    store.write(Batch(events=[replace(e, time_s=clock.now_s()) for e in events(50)]))
    retention = replace(RETENTION, journal_most=10)
    assert (await cut(store, clock, retention))[:2] == (40, [40])
    assert [event.seq for event in store.events(0, 99)] == list(range(41, 51))


async def test_the_newest_event_stays_whatever_is_asked_and_numbers_go_on() -> None:
    store, clock = MemoryStore(), FakeClock()
    store.write(Batch(events=events(5)))
    assert (await cut(store, clock))[0] == 4
    assert store.load().last_event == 5


async def test_where_nothing_goes_nothing_moves() -> None:
    store, clock = MemoryStore(), FakeClock()
    store.write(Batch(events=[replace(e, time_s=clock.now_s()) for e in events(5)]))
    assert await cut(store, clock) == (0, [], [])
    assert HORIZON not in store.load().meta


async def test_the_horizon_never_goes_back() -> None:
    """An older story ends and goes, after the time to keep was made longer."""
    store, clock = MemoryStore(), FakeClock()
    store.write(Batch(events=events(5)))
    assert (await cut(store, clock, horizon=300))[1] == [300]
    assert store.load().meta[HORIZON] == "300"


# --- in the master
#   ----------------------------------------------------------------------------------


def keeping(kept_s: float) -> MasterConfig:
    return replace(config_of(), retention=RetentionConfig(journal_kept=Seconds(kept_s)))


def with_a_history() -> Master:
    """Job 1 has ended long ago, job 2 lives since then, job 3 ended now."""
    master = Master(keeping(3_600.0))
    for _ in range(3):
        master.submit(1)
    master.cancel(JobId(1))
    master.tick(10_000.0)
    master.cancel(JobId(3))
    return master


def compacted(master: Master) -> None:
    """What the hourly tick does."""

    async def turn() -> None:
        await master.loop.turn([])
        master.loop._housekeep([letter])
        assert master.loop._compacting is not None
        await master.loop._compacting

    letter = Envelope(Tick("compact"), None)
    master._tasks.run_until_complete(turn())


def test_the_stories_of_living_jobs_and_of_late_ends_are_kept_whole() -> None:
    master = with_a_history()
    one, two, three = (master.words(JobId(number)) for number in (1, 2, 3))
    assert one[0] == two[0] == three[0] == "job_submitted"
    compacted(master)

    assert [master.words(JobId(number)) for number in (1, 2, 3)] == [[], two, three]
    horizon = master.loop.published.journal_horizon
    assert horizon > 0
    master.restart()
    assert master.loop.published.journal_horizon == horizon
    assert master.submit(1).job_id == 4
    master.close()


def follow(master: Master, cursor: int, count: int) -> list[int]:
    """The sequences of the next events after a cursor."""

    async def read() -> list[int]:
        source: Any = aiter(master.loop.watch(cursor))
        async with aclosing(source):
            return [(await anext(source)).seq for _ in range(count)]

    return master._tasks.run_until_complete(read())


def test_a_watcher_from_behind_the_horizon_is_told_what_to_do() -> None:
    master = with_a_history()
    compacted(master)
    horizon = master.loop.published.journal_horizon
    with pytest.raises(CursorExpired) as caught:
        follow(master, horizon - 1, 1)

    assert caught.value.metadata["oldest"] == str(horizon)
    assert "dlq status" in caught.value.hint
    last = master.state.journal.next_sequence - 1
    assert follow(master, horizon, last - horizon) == list(range(horizon + 1, last + 1))
    kept = [event.seq for event in master.events()]
    assert follow(master, 0, len(kept)) == kept, "from the beginning of what is kept"
    master.close()


def test_a_reader_whom_retention_overtakes_is_told() -> None:
    master = Master(keeping(3_600.0))
    master.turn(*(master.submission() for _ in range(400)))  # several pages of the journal
    master.turn(
        *(
            CancelJob(caller=ALICE, request_id="", job_id=job_id)
            for job_id in master.state.cluster.jobs
        )
    )
    master.tick(10_000.0)
    master.submit(1)

    async def read() -> int:
        source = aiter(master.loop.watch(0))
        seen = (await anext(source)).seq
        await master.loop._compact()
        async for event in source:
            seen = event.seq
        return seen

    with pytest.raises(CursorExpired):
        master._tasks.run_until_complete(read())
    master.close()


def test_a_store_that_fails_is_told_in_the_log_and_ends_no_turn() -> None:
    master = with_a_history()
    before = master.words()
    master.store.fail_with = Unavailable("the store has failed before")
    compacted(master)
    master.store.fail_with = None

    assert master.words() == before
    compacted(master)
    assert master.words() != before
    master.close()


async def test_turns_go_on_between_the_slices() -> None:
    """While the journal is cut the loop answers, and what it writes is there afterwards."""
    master = await asyncio.to_thread(Master, keeping(3_600.0))
    master.store.write(Batch(events=[replace(e, seq=e.seq + 1_000_000) for e in events(3_000)]))
    master.state.journal.next_sequence = 2_000_000
    turning = asyncio.get_running_loop().create_task(master.loop.run())
    cutting = asyncio.get_running_loop().create_task(master.loop._compact())
    answers = [await master.loop.ask(master.submission()) for _ in range(20)]
    assert not cutting.done()
    await cutting

    assert [answer.job.job_id for answer in answers] == list(range(1, 21))
    assert master.words().count("job_submitted") == 20
    assert master.words().count("node_noted") <= 1, "the newest of the journal always stays"
    master.loop.stop()
    await turning
    master.close()
