"""The writer thread: it owns the write connection, and one batch is one transaction.

What arrives while a batch is being synced becomes the loop's next batch: that is the group commit.
A batch that fails is never tried again: after a failed fsync a success means nothing. The loop ends
the process; the next one starts from what is really on disk.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from pathlib import Path

from sqlite_utils import Database

from dlq_master.store.batch import Batch
from dlq_master.store.open import open_database
from dlq_master.store.rows import write_batch
from dlq_master.store.write import write

_Work = tuple[Callable[[Database], None], asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class Writer:
    """Commits batches in the order they are handed in."""

    def __init__(self, path: Path) -> None:
        """Open (and migrate) the database in the writer thread. Raises what `open_database` raises."""
        self._path = path
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._opened: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()
        if (error := self._opened.get()) is not None:
            raise error

    async def commit(self, batch: Batch) -> None:
        """Return when the batch is on disk. Raises sqlite3.Error when it is not and never will be."""
        await self._do(lambda db: _commit(db, batch))

    def close(self) -> None:
        """Finish what was handed in, close the connection, end the thread."""
        self._work.put(None)
        self._thread.join()

    async def _do(self, action: Callable[[Database], None]) -> None:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._work.put((action, loop, done))
        await done

    def _run(self) -> None:
        try:
            db = open_database(self._path)
        except BaseException as error:  # noqa: BLE001 - handed to the constructor, which raises it
            self._opened.put(error)
            return
        self._opened.put(None)
        while (work := self._work.get()) is not None:
            action, loop, done = work
            try:
                action(db)
            except BaseException as error:  # noqa: BLE001 - handed to the awaiting loop, which dies of it
                loop.call_soon_threadsafe(_settle, done, error)
            else:
                loop.call_soon_threadsafe(_settle, done, None)
        db.close()


def _settle(done: "asyncio.Future[None]", error: BaseException | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def _commit(db: Database, batch: Batch) -> None:
    with write(db):
        write_batch(db, batch)
