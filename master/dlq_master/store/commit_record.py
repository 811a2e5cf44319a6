"""A small file beside the database with the acknowledged batches: their numbers and contents.

SQLite silently drops an unreadable end of its write-ahead log. The database is then sound, but
older than the answers to callers. Each batch has a number, which the database stores; the last
batches are here too. A database with a lower number has lost batches, and this file has their
content. The record of a batch is written after its commit and before its answers, and synced once a
second. So the death of the process loses no record. A power cut loses the last second's.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Final

from dlq_master.store.batch import Batch
from dlq_master.store.port import DatabaseDamaged

SLOTS: Final = 64
SLOT_BYTES: Final = 512
MOST_NAMED: Final = 16


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """An acknowledged batch."""

    number: int
    time_s: float = 0.0  # of its last event; 0: it had none
    jobs: tuple[int, ...] = ()  # the first of those that it changed
    job_count: int = 0
    first_event: int = 0
    last_event: int = 0

    @classmethod
    def of(cls, number: int, batch: Batch) -> CommittedBatch:
        jobs = [int(job.job_id) for job in batch.jobs]
        events = batch.events
        return cls(
            number=number,
            time_s=events[-1].time_s if events else 0.0,
            jobs=tuple(jobs[:MOST_NAMED]),
            job_count=len(jobs),
            first_event=events[0].seq if events else 0,
            last_event=events[-1].seq if events else 0,
        )


class CommitRecord:
    """The newest `SLOTS` batches, each in its slot. Used by one thread."""

    def __init__(self, path: Path) -> None:
        """OSError: there is no room for it."""
        self._path = path
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        missing = SLOTS * SLOT_BYTES - os.fstat(self._handle).st_size
        if missing > 0:  # at once, so that no later record lacks room
            os.pwrite(self._handle, bytes(missing), SLOTS * SLOT_BYTES - missing)

    def note(self, committed: CommittedBatch) -> None:
        """Record a batch in the slot of the one `SLOTS` before it."""
        text = _dumps(dict(zip(_NAMES, _values(committed), strict=True))).encode()
        record = b"%08x %s\n" % (zlib.crc32(text), text)
        slot = committed.number % SLOTS
        os.pwrite(self._handle, record.ljust(SLOT_BYTES, b"\0"), slot * SLOT_BYTES)

    def sync(self) -> None:
        """Wait until the file is on disk."""
        os.fdatasync(self._handle)

    def after(self, number: int) -> Sequence[CommittedBatch]:
        """Batches with higher numbers, in order. A damaged slot counts as empty.

        DatabaseDamaged: the disk refuses to read the file, so that nobody knows what is missing.
        """
        try:
            slots = [os.pread(self._handle, SLOT_BYTES, at * SLOT_BYTES) for at in range(SLOTS)]
        except OSError as error:
            raise DatabaseDamaged(
                f"{self._path}: {error.strerror}",
                hint="look at the disk; move the file away if it is lost: then no start can tell "
                "whether acknowledged work is missing",
            ) from error
        found = [one for one in map(_read, slots) if one is not None and one.number > number]
        return sorted(found, key=lambda one: one.number)

    def close(self) -> None:
        os.close(self._handle)


_NAMES = CommittedBatch.__slots__
_values = attrgetter(*_NAMES)
_dumps = json.JSONEncoder(separators=(",", ":")).encode


def _read(slot: bytes) -> CommittedBatch | None:
    checksum, _, text = slot.partition(b"\n")[0].partition(b" ")
    try:
        if int(checksum, 16) != zlib.crc32(text):
            return None
        fields = json.loads(text)
        return CommittedBatch(**{**fields, "jobs": tuple(fields["jobs"])})
    except (ValueError, TypeError, KeyError):
        return None
