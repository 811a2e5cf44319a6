"""The writer thread: it owns the write connection, and commits each batch in one transaction.

A failed batch is never tried again, and nothing is written after it: after a failed sync a success
means nothing. The loop ends the process, and the next one starts from the rows on disk.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from dlq_common.errors import Unavailable
from dlq_master.model.attempts.attempt import TakenSteps
from dlq_master.model.ids import AttemptKey
from dlq_master.store.batch import AUDIT_HEAD, BATCH, COPY, Batch
from dlq_master.store.commit_record import CommitRecord, CommittedBatch
from dlq_master.store.port import AuditState, CommitFailed, StoreLine
from dlq_master.store.rows import (
    drop_steps,
    prune_journal,
    write_audit_state,
    write_batch,
    write_meta,
    write_steps,
)

# Other writes wait until no batch has come for so long, or so many batches have.
BESIDE_AFTER_S: Final = 1.0
BESIDE_AFTER: Final = 100

Work = Callable[[StoreLine], None]


class _Work(NamedTuple):
    write: Work
    batch: Batch | None  # None: other work, whose failure (a full disk) stops nothing
    loop: asyncio.AbstractEventLoop
    done: "asyncio.Future[None]"


class BatchWriter:
    """Commits batches in order. One process at a time has a writer.

    `lost`: acknowledged batches that this database lacks. A database implements the transaction
    (`_failure_of`) and the work beside the batches.
    """

    def __init__(self) -> None:
        self.lost: Sequence[CommittedBatch] = ()
        self._audit: AuditState | None = None
        self._audit_head, self._audit_key = "", AUDIT_HEAD
        self._broken = False  # a batch has failed: no further write
        self.lost_line: Callable[[CommitFailed], None] = lambda _: None
        """Called in the thread: the database is gone, and no batch was on its way."""
        self._since = 0  # batches since that was written
        self._number = 0  # of the last batch
        self._closed = False
        self._work: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)

    async def commit(self, batch: Batch) -> None:
        """Wait until the batch is on disk.

        CommitFailed: it is not, and never will be. Unavailable: after such a failure, or after
        `close`.
        """
        await self._hand_in(partial(self._write_batch, batch=batch), batch)

    async def prune_journal(self, sequences: Sequence[int], horizon: int) -> None:
        """Drop these events in a transaction of their own, for which a new batch waits.

        Raises as `commit` does. A full disk ends nothing: batches are still tried.
        """
        prune = partial(prune_journal, sequences=sequences, horizon=horizon)
        await self._hand_in(prune, None)

    async def put_steps(self, taken: Sequence[TakenSteps]) -> bool:
        """Replace these lists of steps in a transaction of their own. False: the disk is full."""
        try:
            await self._hand_in(partial(write_steps, taken=taken), None)
        except CommitFailed as error:
            if not self._is_full(error):
                raise
            return False
        return True

    async def drop_steps(self, keys: Sequence[AttemptKey]) -> None:
        """Drop these lists of steps, as `prune_journal` drops events."""
        await self._hand_in(partial(drop_steps, keys=keys), None)

    def last_turn(self) -> int:
        """The number of the last batch on disk."""
        return self._number

    def tell_of(self, audit: AuditState, key: str = AUDIT_HEAD) -> None:
        """From now on store in the database how far the audit's file is.

        `key`: of the row in meta. Each of several masters has its own file.
        """
        self._audit, self._audit_key = audit, key

    async def _hand_in(self, work: Work, batch: Batch | None) -> None:
        if self._closed:
            raise Unavailable("the store is closed")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._work.put(_Work(work, batch, loop, done))
        await done

    def close(self) -> None:
        """Finish the waiting batches, close the connection, end the thread. May be called twice."""
        if not self._closed:
            self._closed = True
            self._work.put(None)
            self._thread.join()
            self._let_claim_go()

    # --- what differs from database to database -------------------------------------------------

    async def back_up(self) -> Path | None:
        """Copy the rows and return the place; None: the database has its own tools. BackupFailed:
        no copy.
        """
        raise NotImplementedError

    def _write_batch(self, db: StoreLine, batch: Batch) -> None:
        write_batch(db, batch)

    def _failure_of(self, work: Work) -> BaseException | None:
        """Do the work in one transaction; return why it is not on disk, or None."""
        raise NotImplementedError

    def _is_full(self, error: BaseException) -> bool:
        """Whether there was no room, so that nothing was written or lost."""
        raise NotImplementedError

    def _note(self, number: int, batch: Batch) -> None:
        """A batch is on disk."""

    def _lost_line(self, error: CommitFailed) -> None:
        self._broken = True
        self.lost_line(error)

    def _sync_notes(self) -> None:
        """Work beside the batches that touches none of their tables."""

    def _close_line(self) -> None:
        """Close what the thread uses."""
        raise NotImplementedError

    def _let_claim_go(self) -> None:
        """Let another process write."""

    # --- the thread -----------------------------------------------------------------------------

    def _start(self, meta: Mapping[str, str], record: CommitRecord | None = None) -> None:
        """Begin with a database with this meta.

        If acknowledged batches of the record are missing in it, later batches get higher numbers. A
        restored backup lacks later batches, and says so itself.
        """
        self._number = int(meta.get(BATCH, "0"))
        ahead = record.after(self._number) if record is not None else ()
        if ahead:
            self._number = ahead[-1].number
        self.lost = () if meta.get(COPY) == "yes" else tuple(ahead)
        self._thread.start()

    def _run(self) -> None:
        while (work := self._next()) is not None:
            error: BaseException | None = None
            if self._broken:
                error = Unavailable("the store has failed before")
            else:
                error = self._failure(work)
                self._broken = error is not None and not (
                    work.batch is None and self._is_full(error)
                )
            # A loop that has ended meanwhile has nobody left to tell.
            with suppress(RuntimeError):
                work.loop.call_soon_threadsafe(_settle, work.done, error)
            self._since += 1
            if self._since >= BESIDE_AFTER:
                self._write_beside()
        self._write_beside()
        self._close_line()

    def _next(self) -> _Work | None:
        """The next batch; None: there will be none. Work beside the batches goes on meanwhile."""
        while True:
            try:
                return self._work.get(timeout=BESIDE_AFTER_S)
            except queue.Empty:
                self._write_beside()

    def _failure(self, work: _Work) -> BaseException | None:
        """Why it is not on disk, or None."""
        if work.batch is None:
            return self._failure_of(work.write)
        number = self._number + 1
        audit = self._audit
        head, written = ("", ()) if audit is None else audit.written()

        def write_all(db: StoreLine) -> None:
            work.write(db)
            write_meta(db, {BATCH: str(number)})
            if audit is not None and (head != self._audit_head or written):
                write_audit_state(db, head, written, self._audit_key)

        error = self._failure_of(write_all)
        if error is None:
            self._number = number
            self._note(number, work.batch)
            self._let_go(head, written)
        return error

    def _let_go(self, head: str, written: tuple[str, ...]) -> None:
        self._audit_head = head
        if self._audit is not None and written:
            self._audit.forgotten(written)

    def _write_beside(self) -> None:
        """Sync the record of batches, and store how far the audit is.

        Neither may fail a batch; a failed one is tried again.
        """
        self._since = 0
        self._sync_notes()
        if self._audit is None or self._broken:
            return
        head, written = self._audit.written()
        if head == self._audit_head and not written:
            return
        if self._failure_of(self._audit_told(head, written)) is None:
            self._let_go(head, written)

    def _audit_told(self, head: str, written: tuple[str, ...]) -> Work:
        return lambda db: write_audit_state(db, head, written, self._audit_key)


def _settle(done: "asyncio.Future[None]", error: BaseException | None) -> None:
    if done.cancelled():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
