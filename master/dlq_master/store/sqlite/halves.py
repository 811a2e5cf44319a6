"""The two halves of a store on a SQLite file.

The writer has the claim, the transactions, and the record of its batches. The reader has two
connections that only read, and that see the last commit (WAL mode): one for the loop's thread, one
for lists.
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
from dlq_master.store.port import CommitFailed
from dlq_master.store.reader import StoreReader
from dlq_master.store.sqlite.backup import backup
from dlq_master.store.sqlite.database import Database
from dlq_master.store.sqlite.open import EarlyCheck, claim, connect, open_database, write

BACKUP: Final = "dlq.backup.db"  # the copy that the master makes by itself, beside the database


class Writer(BatchWriter):
    """Commits batches to a file in the order they are handed in."""

    def __init__(self, path: Path, early: EarlyCheck | None = None) -> None:
        """Claim, open and migrate the database. Raises DatabaseInUse or DatabaseDamaged."""
        super().__init__()
        self._path = path
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
        """Copy the last commit beside the database. Raises BackupFailed."""
        target = self._path.with_name(BACKUP)
        await asyncio.to_thread(backup, self._path, target)
        return target

    def _failure_of(self, work: Callable[[Database], None]) -> BaseException | None:
        try:
            with write(self._db):
                work(self._db)
        except (sqlite3.Error, OSError) as error:
            # The name of SQLite's error (SQLITE_FULL, SQLITE_IOERR_FSYNC) says more than its
            # sentence.
            name = getattr(error, "sqlite_errorname", type(error).__name__)
            failure = CommitFailed(f"a commit failed: {error} ({name})", error=name)
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

    def _sync_notes(self) -> None:
        with suppress(OSError):
            self._record.sync()

    def _close_line(self) -> None:
        self._db.close()
        self._record.close()

    def _let_claim_go(self) -> None:
        os.close(self._claim)


class Reader(StoreReader):
    """Named queries on the committed state of a file."""

    def __init__(self, path: Path) -> None:
        super().__init__(connect(path), connect(path))
