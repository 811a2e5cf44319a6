"""The writer and the reader of a SQLite file.

The writer has the claim, the transactions, and the record of its batches. The reader has two
read-only connections that see the last commit (WAL mode): one for the loop's thread, one for lists.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from dlq_master.store.batch import Batch
from dlq_master.store.commit_record import CommitRecord, CommittedBatch
from dlq_master.store.committing import BatchWriter
from dlq_master.store.port import CommitFailed, StoreLine
from dlq_master.store.reader import StoreReader
from dlq_master.store.sqlite.backup import backup
from dlq_master.store.sqlite.database import Database
from dlq_master.store.sqlite.open import EarlyCheck, claim, connect, open_database, write

# Where logs are copied before they begin anew, about so many frames are one log, as SQLite does it.
LOG_FRAMES: Final = 1000
FIRST_LOG_BATCHES: Final = 100  # until it is known how many frames a batch has
BACKUP: Final = "dlq.backup.db"  # the copy that the master makes by itself, beside the database


class Writer(BatchWriter):
    """Commits batches to a file in order."""

    def __init__(self, path: Path, early: EarlyCheck | None = None) -> None:
        """Claim, open and migrate the database. Raises DatabaseInUse or DatabaseDamaged."""
        super().__init__()
        self._path = path
        self._copy_log: Callable[[Path, int], None] | None = None
        self._log_batches, self._logged = FIRST_LOG_BATCHES, 0  # of one log; in the present one
        self._claim = claim(path)
        try:
            self._db = open_database(path, early)
            self._record = CommitRecord(path.with_name(f"{path.name}.commits"))
        except BaseException:
            os.close(self._claim)
            raise
        meta = dict(self._db.execute("SELECT key, value FROM meta"))
        self._start(meta, self._record)

    async def back_up(self) -> Path | None:
        """Copy the last commit beside the database. BackupFailed: no copy was made."""
        target = self._path.with_name(BACKUP)
        await asyncio.to_thread(backup, self._path, target)
        return target

    async def copy_logs_by(self, copy_log: Callable[[Path, int], None]) -> None:
        """Call `copy_log` with every write-ahead log, and its number of frames, before it starts
        anew.

        The log is in the database then. The writer's thread calls it.
        """

        def take_over(_db: StoreLine) -> None:
            self._db.execute("PRAGMA wal_autocheckpoint = 0")
            self._copy_log = copy_log

        await self._hand_in(take_over, None)

    def _failure_of(self, work: Callable[[Database], None]) -> BaseException | None:
        try:
            with write(self._db):
                work(self._db)
        except (sqlite3.Error, OSError) as error:
            # The name of SQLite's error (SQLITE_FULL, SQLITE_IOERR_FSYNC) says more than its
            # sentence.
            name = getattr(error, "sqlite_errorname", type(error).__name__)
            what = f"{self._path}: a commit failed: {error} ({name}); {_remedy(name)}"
            failure = CommitFailed(what, error=name)
            failure.__cause__ = error
            return failure
        except BaseException as error:  # noqa: BLE001 - handed to the awaiting loop, which dies of it
            return error
        return None

    def _is_full(self, error: BaseException) -> bool:
        return isinstance(error, CommitFailed) and error.metadata.get("error") == "SQLITE_FULL"

    def _note(self, number: int, batch: Batch) -> None:
        with suppress(OSError):  # the batch is on disk all the same
            self._record.note(CommittedBatch.of(number, batch))
        self._logged += 1
        if self._copy_log is not None and self._logged >= self._log_batches:
            self._end_log(self._copy_log)

    def _end_log(self, copy_log: Callable[[Path, int], None]) -> None:
        """Bring the log into the database. Once all of it is there, the next commit
        starts it anew.
        """
        with suppress(sqlite3.Error):  # the log goes on, and the next time it is tried again
            _, frames, done = self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if frames == done > 0:
                copy_log(self._path, frames)
                self._log_batches = max(1, self._log_batches * LOG_FRAMES // frames)
        self._logged = 0

    def _sync_notes(self) -> None:
        with suppress(OSError):
            self._record.sync()

    def _close_line(self) -> None:
        self._db.close()
        self._record.close()

    def _let_claim_go(self) -> None:
        os.close(self._claim)


def _remedy(error: str) -> str:
    if error == "SQLITE_FULL":
        return "make room on this disk, and start the master"
    return "look at this disk; the next start of the master goes on from what it holds"


class Reader(StoreReader):
    """Named queries on the committed state of a file."""

    def __init__(self, path: Path) -> None:
        super().__init__(connect(path), connect(path))
