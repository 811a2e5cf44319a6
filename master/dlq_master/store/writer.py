"""The writer thread: it owns the write connection, and one batch is one transaction.

What arrives while a batch is being synced becomes the loop's next batch: that is the group commit.
A batch that fails is never tried again, and nothing is written after it: after a failed fsync a
success means nothing. The loop ends the process; the next one starts from what is really on disk.
"""

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sqlite_utils import Database

from dlq_common.errors import DlqError, Unavailable
from dlq_master.store.batch import Batch
from dlq_master.store.open import claim, open_database
from dlq_master.store.rows import prune_journal, write_batch
from dlq_master.store.write import write


class CommitFailed(DlqError):
    """A batch is not on disk, and nothing may be written by this process any more. Facts: error."""

    reason = "COMMIT_FAILED"


class _Work(NamedTuple):
    write: Callable[[Database], None]
    optional: bool  # a full disk may refuse it, and batches go on
    loop: asyncio.AbstractEventLoop
    done: "asyncio.Future[None]"


class Writer:
    """Commits batches in the order they are handed in. One process at a time has one of these."""

    def __init__(self, path: Path) -> None:
        """Claim, open and migrate the database. Raises DatabaseInUse or DatabaseDamaged."""
        self._path = path
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._claim = claim(path)
        try:
            self._db = open_database(path)
        except BaseException:
            os.close(self._claim)
            raise
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    async def commit(self, batch: Batch) -> None:
        """Return when the batch is on disk. Raises CommitFailed when it is not and never will be;
        Unavailable after such a failure, or after `close`."""
        await self._hand_in(partial(write_batch, batch=batch))

    async def prune_journal(self, sequences: Sequence[int], horizon: int) -> None:
        """Drop these events, in a transaction of its own: a batch that comes meanwhile waits for it.

        Raises as `commit` does. A full disk alone ends nothing: batches are still tried.
        """
        prune = partial(prune_journal, sequences=sequences, horizon=horizon)
        await self._hand_in(prune, optional=True)

    async def _hand_in(self, work: Callable[[Database], None], *, optional: bool = False) -> None:
        if self._closed:
            raise Unavailable("the store is closed")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._work.put(_Work(work, optional, loop, done))
        await done

    def close(self) -> None:
        """Finish what was handed in, close the connection, end the thread. Twice is once."""
        if not self._closed:
            self._closed = True
            self._work.put(None)
            self._thread.join()
            os.close(self._claim)

    def _run(self) -> None:
        broken = False
        while (work := self._work.get()) is not None:
            error: BaseException | None = None
            if broken:
                error = Unavailable("the store has failed before")
            else:
                error = _failure(self._db, work.write)
                broken = error is not None and not (work.optional and _is_full(error))
            # A loop that has ended meanwhile has nobody left to tell.
            with suppress(RuntimeError):
                work.loop.call_soon_threadsafe(_settle, work.done, error)
        self._db.close()


def _is_full(error: BaseException) -> bool:
    """Nothing was written and nothing was lost: there was no room."""
    return isinstance(error, CommitFailed) and error.metadata.get("error") == "SQLITE_FULL"


def _failure(db: Database, work: Callable[[Database], None]) -> BaseException | None:
    try:
        with write(db):
            work(db)
    except (sqlite3.Error, OSError) as error:
        # The name of SQLite's error (SQLITE_FULL, SQLITE_IOERR_FSYNC) says more than its sentence.
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        failure = CommitFailed(f"a commit failed: {error} ({name})", error=name)
        failure.__cause__ = error
        return failure
    except BaseException as error:  # noqa: BLE001 - handed to the awaiting loop, which dies of it
        return error
    return None


def _settle(done: "asyncio.Future[None]", error: BaseException | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
