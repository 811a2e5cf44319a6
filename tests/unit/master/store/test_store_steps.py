"""Lists of steps on the disk: replaced whole, read by job, and gone some time after their jobs."""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dlq_master.model.attempts.attempt import AttemptState, TakenSteps
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.job import JobState
from dlq_master.store.batch import Batch
from dlq_master.store.sqlite.halves import Reader, Writer
from dlq_master.store.sqlite.open import create_database
from dlq_master.store.tables.codec import BodyDamaged
from support.stored_values import a_job, an_attempt


@pytest.fixture
def path(tmp_path: Path) -> Path:
    create_database(tmp_path / "dlq.db")
    return tmp_path / "dlq.db"


@pytest.fixture
def writer(path: Path) -> Iterator[Writer]:
    with closing(Writer(path)) as made:
        yield made


@pytest.fixture
def reader(path: Path, writer: Writer) -> Iterator[Reader]:
    with closing(Reader(path)) as made:
        yield made


def a_list(
    job: int = 1, attempt: int = 1, content: bytes = b"a list" * 99, told_s: float = 50.0
) -> TakenSteps:
    return TakenSteps(AttemptKey(JobId(job), attempt), told_s, content)


async def test_lists_come_back_as_they_were(writer: Writer, reader: Reader) -> None:
    lists = [a_list(), a_list(2, content=bytes(100_000)), a_list(3, content=b"")]
    assert await writer.put_steps(lists)
    jobs = [JobId(1), JobId(2), JobId(3), JobId(9)]
    assert list(await reader.steps(jobs, every=False)) == lists


async def test_a_newer_list_replaces_an_older_one_and_not_the_other_way(
    writer: Writer, reader: Reader
) -> None:
    await writer.put_steps([a_list(told_s=50.0)])
    await writer.put_steps([a_list(content=b"new", told_s=60.0)])
    await writer.put_steps([a_list(content=b"late", told_s=55.0)])
    [found] = await reader.steps([JobId(1)], every=True)
    assert (found.told_s, found.content) == (60.0, b"new")


async def test_the_last_attempt_is_meant_unless_every_one_is(
    writer: Writer, reader: Reader
) -> None:
    await writer.put_steps([a_list(attempt=2), a_list(attempt=11), a_list(attempt=3)])
    [last] = await reader.steps([JobId(1)], every=False)
    assert last.key.number == 11
    every = await reader.steps([JobId(1)], every=True)
    assert [one.key.number for one in every] == [2, 3, 11]


async def test_a_list_that_the_disk_has_changed_is_not_served(
    path: Path, writer: Writer, reader: Reader
) -> None:
    await writer.put_steps([a_list()])
    with closing(sqlite3.connect(path, timeout=5)) as other, other:
        other.execute("UPDATE steps SET content = x'00112233'")
    with pytest.raises(BodyDamaged):
        await reader.steps([JobId(1)], every=False)


async def test_lists_go_some_time_after_their_jobs(writer: Writer, reader: Reader) -> None:
    ended: dict[str, Any] = {"state": JobState.COMPLETED, "end_time_s": 100.0}
    gone: dict[str, Any] = {"state": AttemptState.SUCCEEDED, "ended_time_s": 100.0}
    await writer.commit(
        Batch(
            jobs=[a_job(1, **ended), a_job(2), a_job(3, **ended)],
            attempts=[an_attempt(1, **gone), an_attempt(2), an_attempt(3)],
        )
    )
    await writer.put_steps([a_list(1), a_list(2), a_list(3)])
    assert await reader.steps_behind(100.0, 9) == []
    behind = await reader.steps_behind(100.5, 9)
    assert behind == [AttemptKey(JobId(1), 1)], "the others live, or something of them does"
    await writer.drop_steps(behind)
    left = await reader.steps([JobId(at) for at in (1, 2, 3)], every=True)
    assert [one.key.job_id for one in left] == [2, 3]


async def test_a_list_of_no_room_is_no_failure(writer: Writer, reader: Reader) -> None:
    await writer.put_steps([a_list()])
    writer._db.execute("PRAGMA max_page_count = 1")
    large = a_list(2, content=random.Random(1).randbytes(400_000))
    assert not await writer.put_steps([large])
    writer._db.execute("PRAGMA max_page_count = 100000")
    assert await writer.put_steps([large])
    assert len(await reader.steps([JobId(1), JobId(2)], every=False)) == 2
