"""What a disk took back or changed is noticed: acknowledged batches that are gone, and pages that
are not as written.
"""

import asyncio
import errno
import os
import shutil
from pathlib import Path

import pytest

from dlq_master.control.composition.starting import Losses
from dlq_master.store.batch import COPY, Batch
from dlq_master.store.commit_record import SLOT_BYTES, SLOTS, CommitRecord, CommittedBatch
from dlq_master.store.port import BackupFailed, DatabaseDamaged
from dlq_master.store.sqlite.backup import backup
from dlq_master.store.sqlite.halves import Reader, Writer
from dlq_master.store.sqlite.open import create_database, open_database
from dlq_master.store.tables.codec import BodyDamaged, decode, encode
from support.stored_values import a_job, an_event, first_batch

FRAME = 24 + 4096  # of the write-ahead log: a header and a page


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "dlq.db"
    create_database(path)
    return path


def _crashed(path: Path, numbers: range) -> Path:
    """The files as a master leaves them that was killed after it had acknowledged these jobs."""
    writer = Writer(path)

    async def commit() -> None:
        for number in numbers:
            await writer.commit(Batch(jobs=[a_job(number)], events=[an_event(number)]))

    asyncio.run(commit())
    left = path.parent / "crashed"
    left.mkdir()
    for name in ("dlq.db", "dlq.db-wal", "dlq.db.commits"):
        shutil.copy(path.with_name(name), left / name)
    writer.close()
    return left / "dlq.db"


def _jobs(path: Path) -> list[int]:
    reader = Reader(path)
    found = [int(job.job_id) for job in reader.load().jobs]
    reader.close()
    return found


def test_a_torn_last_page_of_the_log_is_a_batch_that_is_told_to_be_lost(path: Path) -> None:
    left = _crashed(path, range(1, 6))
    wal = left.with_name("dlq.db-wal")
    torn = bytearray(wal.read_bytes())
    torn[-100] ^= 0xFF
    wal.write_bytes(bytes(torn))

    writer = Writer(left)
    assert [(one.number, one.jobs) for one in writer.lost] == [(5, (5,))]
    assert _jobs(left) == [1, 2, 3, 4], "SQLite itself says nothing"
    (event,) = Losses(writer.lost).events()
    assert event[0] == "commits_lost"
    assert event[2] == "acknowledged, and not in the database any more: batch 5 (changes of jobs 5)"
    asyncio.run(writer.commit(Batch(jobs=[a_job(9)])))
    writer.close()
    again = Writer(left)
    assert again.lost == (), "it is told once, and numbers of batches are not given twice"
    again.close()


def test_a_log_that_is_cut_or_gone_tells_every_batch_that_went_with_it(path: Path) -> None:
    left = _crashed(path, range(1, 6))
    left.with_name("dlq.db-wal").unlink()
    writer = Writer(left)
    assert {job for one in writer.lost for job in one.jobs} == {1, 2, 3, 4, 5}
    writer.close()


def test_a_crash_without_damage_has_lost_nothing(path: Path) -> None:
    left = _crashed(path, range(1, 6))
    writer = Writer(left)
    assert writer.lost == ()
    writer.close()
    assert _jobs(left) == [1, 2, 3, 4, 5]


def test_a_restored_copy_knows_itself_what_it_is_and_nothing_is_told_twice(
    path: Path, tmp_path: Path
) -> None:
    left = _crashed(path, range(1, 6))
    copy = tmp_path / "copy.db"
    backup(path, copy)
    writer = Writer(path)
    asyncio.run(writer.commit(Batch(jobs=[a_job(7)], meta={COPY: "no"})))
    writer.close()
    shutil.copy(copy, path)
    restored = Writer(path)
    assert restored.lost == ()
    asyncio.run(restored.commit(Batch(meta={COPY: "no"})))
    restored.close()
    assert Writer(path).lost == ()
    assert left.exists()


def test_only_the_newest_batches_are_remembered_and_a_slot_that_is_torn_is_none(
    tmp_path: Path,
) -> None:
    record = CommitRecord(tmp_path / "commits")
    for number in range(1, SLOTS + 11):
        record.note(CommittedBatch(number, 1.0, (number,), 1))
    assert [one.number for one in record.after(0)] == list(range(11, SLOTS + 11))
    record.sync()
    record.close()
    data = bytearray((tmp_path / "commits").read_bytes())
    assert len(data) == SLOTS * SLOT_BYTES
    data[20] ^= 0xFF
    (tmp_path / "commits").write_bytes(bytes(data))
    again = CommitRecord(tmp_path / "commits")
    assert len(again.after(0)) == SLOTS - 1
    again.close()


# --- pages
#   ------------------------------------------------------------------------------------------


@pytest.fixture
def whole(path: Path) -> bytes:
    """A database with some rows, all in its one file."""
    writer = Writer(path)
    asyncio.run(writer.commit(first_batch()))
    writer.close()
    assert not path.with_name("dlq.db-wal").exists()
    return path.read_bytes()


def test_a_changed_byte_of_any_body_is_noticed_at_the_open(path: Path, whole: bytes) -> None:
    bodies = {encode(value) for value in (*first_batch().jobs, *first_batch().nodes)}
    assert bodies
    for body in bodies:
        begin = whole.index(body.encode())
        for at in range(begin, begin + len(body.encode()), 37):
            changed = bytearray(whole)
            changed[at] ^= 0x01
            path.write_bytes(bytes(changed))
            with pytest.raises(DatabaseDamaged, match=r"restore a backup"):
                open_database(path).close()
    path.write_bytes(whole)
    open_database(path).close()


def test_what_changes_while_the_master_serves_is_not_served() -> None:
    body = encode(a_job(1))
    changed = body.replace("alice", "mallo", 1)
    assert changed != body
    with pytest.raises(BodyDamaged, match="a stored Job does not match its checksum"):
        decode(changed, type(a_job(1)))


def test_a_body_of_an_older_master_is_read_without_a_checksum() -> None:
    job = a_job(1)
    assert decode(f"{encode(job)[:-16]}}}", type(job)) == job


def test_no_backup_is_made_of_a_database_that_is_damaged(path: Path, whole: bytes) -> None:
    target = path.with_name("copy.db")
    backup(path, target)
    kept = target.read_bytes()
    changed = bytearray(whole)
    for page in range(2, len(whole) // 4096):
        changed[page * 4096] ^= 0xFF
    path.write_bytes(bytes(changed))
    with pytest.raises(BackupFailed, match=r"damaged|malformed"):
        backup(path, target)
    assert target.read_bytes() == kept


def test_a_record_that_the_disk_refuses_to_read_is_named_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = CommitRecord(tmp_path / "commits")

    def refused(*_: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", refused)
    with pytest.raises(DatabaseDamaged, match="commits: Input/output error") as damaged:
        record.after(0)
    assert "look at the disk" in damaged.value.hint
    record.close()
