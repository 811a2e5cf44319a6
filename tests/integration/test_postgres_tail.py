"""A standby's copy is always what a fresh start would read."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from dlq_common.errors import Unavailable
from dlq_master.model.estimates.lessons import Lesson
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.job import JobState
from dlq_master.model.machines.rented import MachineState
from dlq_master.store.batch import TAUGHT, Batch, Loaded, MemoryWindow, User
from dlq_master.store.postgres import halves
from dlq_master.store.postgres.fence import take_lead
from dlq_master.store.postgres.halves import PostgresReader, PostgresWriter
from dlq_master.store.postgres.line import WRITER, PostgresLine, PostgresPlace
from dlq_master.store.postgres.tail import _BY_KEY, _WHOLE, PostgresRows, StoreTail
from dlq_master.store.stored_tables import FORESEEN, LESSONS, MACHINES, TABLES, TEAMS, USERS, WAITED
from support.postgres_site import PostgresSite, postgres_site
from support.postgres_store import begin_anew
from support.stored_values import (
    a_job,
    a_machine,
    a_node,
    a_recording,
    a_start,
    a_team,
    a_wait,
    an_attempt,
    an_event,
    an_intention,
    first_batch,
    mixed_batch,
)

pytestmark = pytest.mark.integration
WINDOW = MemoryWindow(kept_s=20.0, most=5)


@pytest.fixture(scope="module")
def site() -> Iterator[PostgresSite]:
    with postgres_site() as found:
        yield found


@pytest.fixture
def place(site: PostgresSite) -> PostgresPlace:
    found = PostgresPlace(site.primary.dsn, allow_asynchronous=True)
    begin_anew(found)
    return found


def alike(loaded: Loaded) -> Loaded:
    """Lessons come in no order."""
    return replace(loaded, lessons=tuple(sorted(loaded.lessons, key=lambda one: one.name)))


def test_every_table_of_values_is_followed() -> None:
    assert {table.name for table in TABLES} <= {*_BY_KEY, *_WHOLE}


async def test_a_tail_is_what_a_start_reads_and_reads_everything_once(
    place: PostgresPlace,
) -> None:
    writer = PostgresWriter(place, "leader")
    tail = StoreTail(PostgresRows(place), MemoryWindow())
    with closing(writer), closing(tail), closing(PostgresReader(place, writer.fence)) as fresh:
        assert tail.catch_up() == 0
        for batch in (first_batch(), mixed_batch(), Batch(audit_owed=[("n1", "line")])):
            await writer.commit(batch)
            assert tail.catch_up() == 1
            assert alike(tail.loaded(writer.fence)) == alike(fresh.load())
        assert tail.catch_up() == 0
        assert tail.reloads == 1


async def test_a_long_story_of_changes_is_followed(place: PostgresPlace) -> None:
    chance = random.Random(11)
    writer = PostgresWriter(place, "leader")
    tail = StoreTail(PostgresRows(place), WINDOW)
    with closing(writer), closing(tail), closing(PostgresReader(place, writer.fence)) as fresh:
        await writer.commit(Batch(meta={"epoch": "1", TAUGHT: "yes"}))
        for turn in range(1, 121):
            await writer.commit(_turn(turn, chance))
            if turn % 4 == 0:
                assert tail.catch_up() in (4, 5)
                told, read = alike(tail.loaded(writer.fence)), alike(fresh.load(WINDOW))
                assert told == replace(read, complete_from_s=told.complete_from_s)
                assert told.complete_from_s >= read.complete_from_s
        assert tail.reloads == 1


def _turn(turn: int, chance: random.Random) -> Batch:
    """A new job, and changes of former ones; a job that ends ends at this turn's time."""
    some = [JobId(chance.randint(1, turn)) for _ in range(3)]
    batch = Batch(
        jobs=[a_job(turn)],
        events=[replace(an_event(turn), time_s=float(turn))],
        intentions=[an_intention(turn, turn)],
        delivered=[chance.randint(1, turn)],
        attempts=[an_attempt(turn)],
        nodes=[a_node(f"n{chance.randint(1, 5)}", boot_id=str(turn))],
        forgotten_nodes=[NodeId(f"n{chance.randint(6, 9)}")],
        recordings=[a_recording(turn)],
        meta={"turn": str(turn)},
    )
    for job_id in {*some}:
        ended = a_job(job_id, state=JobState.COMPLETED, end_time_s=float(turn))
        batch.jobs = [job for job in batch.jobs if job.job_id != job_id] + [ended]
        if chance.random() < 0.8:
            batch.attempts = [one for one in batch.attempts if one.key.job_id != job_id]
            batch.attempts.append(an_attempt(job_id, ended_time_s=float(turn)))
    batch.put(WAITED, a_wait(turn))
    batch.put(FORESEEN, a_start(turn))
    batch.put(LESSONS, Lesson(f"ratio/{turn % 7}", turn))
    batch.put(USERS, User(f"u{turn % 3}", "user", turn, turn, (), 1.0))
    batch.put(TEAMS, a_team(version=turn))
    state = MachineState.AWAY if turn % 2 else MachineState.UP
    end_s = float(turn) if turn % 2 else None
    batch.put(MACHINES, a_machine(f"spot-{turn % 9}", state=state, end_s=end_s))
    batch.drop(FORESEEN, some[0])
    return batch


async def test_a_tail_that_was_away_too_long_reads_everything_anew(
    place: PostgresPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(halves, "TURNS_KEPT", 3)
    monkeypatch.setattr(halves, "_DROP_TURNS_EVERY", 1)
    writer = PostgresWriter(place, "leader")
    tail = StoreTail(PostgresRows(place), WINDOW)
    with closing(writer), closing(tail), closing(PostgresReader(place, writer.fence)) as fresh:
        tail.catch_up()
        for number in range(1, 4):
            await writer.commit(Batch(jobs=[a_job(number)]))
        assert (tail.catch_up(), tail.reloads) == (3, 1)
        for number in range(4, 9):
            await writer.commit(Batch(jobs=[a_job(number)]))
        assert (tail.catch_up(), tail.reloads) == (5, 2)
        assert tail.loaded().jobs == fresh.load(WINDOW).jobs


async def test_a_standby_takes_over_from_its_copy(place: PostgresPlace) -> None:
    """The leader is replaced, and its last turns are in what the next one starts from."""
    leader = PostgresWriter(place, "leader")
    tail = StoreTail(PostgresRows(place), WINDOW)
    tail.catch_up()
    await leader.commit(Batch(jobs=[a_job(1)], meta={"epoch": "1"}))
    with closing(PostgresLine(place, WRITER)) as line:
        fence = take_lead(line, "standby", "s:1", 5.0, leader.fence.epoch)
    assert fence is not None
    following = PostgresWriter(place, "standby", fence)
    tail.catch_up()
    loaded = tail.loaded(fence)
    assert [job.job_id for job in loaded.jobs] == [1]
    assert int(loaded.meta["epoch"]) + 1 == fence.epoch
    await following.commit(Batch(jobs=[a_job(2)]))
    assert tail.catch_up() == 1
    for part in (leader, following, tail):
        part.close()


async def test_a_tail_says_that_the_server_is_away_and_goes_on_afterwards() -> None:
    with postgres_site() as site:
        place = PostgresPlace(site.primary.dsn, allow_asynchronous=True)
        begin_anew(place)
        writer = PostgresWriter(place, "leader")
        await writer.commit(Batch(jobs=[a_job(1)]))
        with closing(StoreTail(PostgresRows(place), WINDOW)) as tail:
            tail.catch_up()
            site.primary.kill()
            with pytest.raises(Unavailable):
                await asyncio.to_thread(tail.catch_up)
            writer.close()
            site.primary.start()
            with closing(PostgresWriter(place, "next")) as following:
                await following.commit(Batch(jobs=[a_job(2)]))
            assert tail.catch_up() == 1
            assert [job.job_id for job in tail.loaded().jobs] == [1, 2]
