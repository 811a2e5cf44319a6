"""The writer thread: in order, once, and honest about what failed."""

import asyncio
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlq_common.errors import Unavailable
from dlq_master.model.ids import JobId
from dlq_master.store.batch import COPY, Batch, PastJobs
from dlq_master.store.port import BackupFailed, CommitFailed
from dlq_master.store.sqlite.backup import backup
from dlq_master.store.sqlite.halves import Reader, Writer
from dlq_master.store.sqlite.open import create_database
from support.stored_values import a_job, an_event, first_batch


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "dlq.db"
    create_database(path)
    return path


@pytest.fixture
def reader(path: Path) -> Iterator[Reader]:
    reader = Reader(path)
    yield reader
    reader.close()


async def test_a_reader_sees_a_batch_once_it_is_committed_and_not_before(
    path: Path, reader: Reader
) -> None:
    writer = Writer(path)
    pending = asyncio.ensure_future(writer.commit(first_batch()))
    assert reader.load().jobs == ()  # nothing was awaited: the loop has not even begun

    await pending
    assert len(reader.load().jobs) == 2
    writer.close()


async def test_batches_are_committed_in_the_order_they_were_handed_in(
    path: Path, reader: Reader
) -> None:
    writer = Writer(path)
    batches = [Batch(meta={"last": str(n)}, events=[an_event(n)]) for n in range(1, 101)]
    await asyncio.gather(*map(writer.commit, batches))

    assert reader.load().meta == {"last": "100"}
    writer.close()


async def test_close_finishes_what_was_handed_in(path: Path, reader: Reader) -> None:
    writer = Writer(path)
    pending = [
        asyncio.ensure_future(writer.commit(Batch(jobs=[a_job(number)]))) for number in range(1, 21)
    ]
    await asyncio.sleep(0)  # let them hand in their batches
    writer.close()
    writer.close()

    await asyncio.gather(*pending)
    assert len(reader.load().jobs) == 20


async def test_after_close_nothing_is_accepted(path: Path) -> None:
    writer = Writer(path)
    writer.close()

    with pytest.raises(Unavailable, match="closed"):
        await writer.commit(first_batch())


async def test_a_failure_is_told_once_as_it_was_and_then_nothing_is_written_any_more(
    path: Path, reader: Reader
) -> None:
    writer = Writer(path)
    await writer.commit(first_batch())
    impossible = Batch(jobs=[a_job(5)], specs=[(JobId(1), b"again")])
    outcomes = await asyncio.gather(
        writer.commit(Batch(jobs=[a_job(4)])),
        writer.commit(impossible),
        writer.commit(Batch(jobs=[a_job(6)])),
        writer.commit(Batch(jobs=[a_job(7)])),
        return_exceptions=True,
    )

    assert outcomes[0] is None
    assert isinstance(outcomes[1], CommitFailed)
    assert outcomes[1].metadata["error"].startswith("SQLITE_CONSTRAINT")
    assert isinstance(outcomes[1].__cause__, sqlite3.IntegrityError)
    assert [type(outcome) for outcome in outcomes[2:]] == [Unavailable, Unavailable]
    assert [job.job_id for job in reader.load().jobs] == [1, 2, 4]
    writer.close()


async def test_a_caller_that_gave_up_does_not_disturb_the_writer(
    path: Path, reader: Reader
) -> None:
    writer = Writer(path)
    given_up = asyncio.ensure_future(writer.commit(first_batch()))
    await asyncio.sleep(0)
    given_up.cancel()
    await writer.commit(Batch(jobs=[a_job(3)]))

    assert given_up.cancelled()
    assert len(reader.load().jobs) == 3  # what was handed in is written all the same
    writer.close()


def test_a_loop_that_has_ended_does_not_keep_the_writer_from_closing(path: Path) -> None:
    writer = Writer(path)

    async def hand_in_and_leave() -> None:
        for number in range(1, 51):
            asyncio.ensure_future(writer.commit(Batch(jobs=[a_job(number)])))  # noqa: RUF006 - left alone on purpose
        await asyncio.sleep(0)

    asyncio.run(hand_in_and_leave())
    writer.close()

    reader = Reader(path)
    assert len(reader.load().jobs) == 50
    reader.close()


async def test_a_backup_is_one_commit_of_the_past_while_commits_go_on(
    path: Path, tmp_path: Path
) -> None:
    writer = Writer(path)
    target = tmp_path / "copy.db"
    stop = asyncio.Event()

    async def commit_on() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            await writer.commit(Batch(jobs=[a_job(number)], events=[an_event(number)]))

    committing = asyncio.create_task(commit_on())
    for _ in range(5):
        await asyncio.to_thread(backup, path, target)
        copy = Reader(target)
        loaded = copy.load()
        copy.close()
        assert len(loaded.jobs) == loaded.last_event
    stop.set()
    await committing
    writer.close()


async def test_a_backup_can_take_the_place_of_the_database(path: Path, tmp_path: Path) -> None:
    writer = Writer(path)
    await writer.commit(first_batch())
    await asyncio.to_thread(backup, path, tmp_path / "copy.db")
    await writer.commit(Batch(jobs=[a_job(3)]))
    writer.close()
    (tmp_path / "copy.db").replace(path)

    restored = Writer(path)
    await restored.commit(Batch(jobs=[a_job(4)]))
    restored.close()
    assert sorted(os.listdir(tmp_path)) == ["dlq.db", "dlq.db.commits", "dlq.db.lock"]
    reader = Reader(path)
    assert [job.job_id for job in reader.load().jobs] == [1, 2, 4]
    assert reader.load().meta[COPY] == "yes", "so that who starts on it knows"
    reader.close()


def test_a_backup_of_nothing_leaves_the_older_one(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    backup(path, target)
    kept = target.read_bytes()
    path.unlink()

    with pytest.raises(BackupFailed):
        backup(path, target)
    assert target.read_bytes() == kept
    assert target.stat().st_mode & 0o077 == 0


def _leave_no_room(path: Path, writer: Writer) -> None:
    """No page can be added any more: what SQLite says of a full disk."""
    pages = writer._db.execute("PRAGMA page_count").fetchone()[0]
    writer._db.execute(f"PRAGMA max_page_count = {pages}")


async def test_retention_that_finds_no_room_ends_nothing(path: Path, reader: Reader) -> None:
    writer = Writer(path)
    await writer.commit(first_batch())
    _leave_no_room(path, writer)
    with pytest.raises(CommitFailed) as caught:
        await writer.prune_journal([1], 10**4000)  # a number that needs a page of its own
    assert caught.value.metadata["error"] == "SQLITE_FULL"
    assert len(reader.events(0, 10)) == 3

    await writer.commit(Batch(meta={"epoch": "9"}))
    await writer.prune_journal([1], 1)
    assert reader.load().meta["epoch"] == "9"
    assert len(reader.events(0, 10)) == 2
    writer.close()


async def test_a_batch_that_finds_no_room_ends_everything_retention_too(path: Path) -> None:
    writer = Writer(path)
    await writer.commit(first_batch())
    _leave_no_room(path, writer)
    with pytest.raises(CommitFailed):
        await writer.commit(Batch(jobs=[a_job(9)], specs=[(JobId(9), bytes(50_000))]))
    with pytest.raises(Unavailable):
        await writer.prune_journal([1], 1)
    writer.close()


async def test_what_is_read_while_the_store_closes_is_unavailable(path: Path) -> None:
    reader = Reader(path)
    reader.close()
    with pytest.raises(Unavailable, match="closed"):
        await reader.past_jobs(PastJobs(), 0, 10)
