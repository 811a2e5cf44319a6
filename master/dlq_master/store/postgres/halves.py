"""The writer and the reader of a PostgreSQL server.

A turn is one pipelined transaction: BEGIN, the fence, the rows, COMMIT, in one round trip. Nothing
is tried twice. After a refusal the server has nothing of it; after a lost connection nobody knows.
In both cases the process ends, and the next one begins with the rows on the server.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

import psycopg

from dlq_master.model.jobs.job import Job
from dlq_master.store.batch import ALL_ENDED, Batch, Loaded, MemoryWindow
from dlq_master.store.committing import BatchWriter
from dlq_master.store.port import CommitFailed, CommitUnknown, DatabaseInUse, FencedOff, StoreLine
from dlq_master.store.postgres.dialect import PARTS, parts_of
from dlq_master.store.postgres.fence import (
    Fence,
    FencedLine,
    check_server,
    claim_session,
    read_leader,
    take_lead,
)
from dlq_master.store.postgres.line import (
    LONG_READER,
    QUICK_READER,
    WRITER,
    PostgresLine,
    PostgresPlace,
)
from dlq_master.store.postgres.schema import FENCED_STATE, apply_steps
from dlq_master.store.postgres.turns import changes_of
from dlq_master.store.reader import StoreReader
from dlq_master.store.rows import ROWS, Writes, write_batch

_FULL: Final = "53100"  # SQLSTATE of a full disk
TURNS_KEPT: Final = 20_000
_DROP_TURNS_EVERY: Final = 200

_CHANGED: Final = ("user", "queue", "state", "version", "end_time_s", "body")
_PARTS: Final = [column for column, _ in PARTS.values()]


def _jobs(writes: Writes) -> Writes:
    """A job's row, with a column for each part that lists search."""
    marks = ", ".join("?" * (9 + len(_PARTS)))
    changes = ", ".join(f"{column} = excluded.{column}" for column in (*_CHANGED, *_PARTS))
    sql = f"INSERT INTO jobs VALUES ({marks}) ON CONFLICT (job_id) DO UPDATE SET {changes}"

    def row(job: Job) -> tuple[object, ...]:
        return (*writes.row(job), *parts_of(job))

    return Writes("jobs", sql, row)


ROWS_HERE: Final = tuple(_jobs(one) if one.name == "jobs" else one for one in ROWS)


class PostgresWriter(BatchWriter):
    """Commits batches in order, as long as its fence holds.

    `may_lose`: the losses that the configuration allows, in words. `noted` is called with each
    committed batch, before its caller knows.
    """

    def __init__(self, server: PostgresPlace, holder: str, fence: Fence | None = None) -> None:
        """Connect, check the server, and bring its tables up to date.

        With a `fence` the caller has taken the lead. Without one the lead is taken here, if no
        other master is connected. Raises DatabaseInUse, DatabaseDamaged, ConfigError or
        Unavailable.
        """
        super().__init__()
        self._line = PostgresLine(server, WRITER)
        try:
            self.may_lose = check_server(self._line, allow_asynchronous=server.allow_asynchronous)
            if fence is None:
                claim_session(self._line)
            apply_steps(self._line)
            self.fence = self._taken(holder) if fence is None else fence
            meta = dict(self._line.execute("SELECT key, value FROM meta").fetchall())
        except BaseException:
            self._line.close()
            raise
        self._committing = False
        self.noted: Callable[[int], None] = lambda number: None
        self._start(meta)

    def _taken(self, holder: str) -> Fence:
        fence = take_lead(self._line, holder, "", 0.0, read_leader(self._line).epoch)
        if fence is None:
            raise DatabaseInUse("another master has just taken the lead")
        return fence

    async def back_up(self) -> None:
        """No copy: the server has its own tools (docs/running/postgresql.md)."""

    def _write_batch(self, db: StoreLine, batch: Batch) -> None:
        number = self._number + 1
        write_batch(db, batch, ROWS_HERE)
        told = json.dumps(changes_of(batch), separators=(",", ":"))
        db.execute("INSERT INTO turns VALUES (?, ?, ?)", [number, self.fence.epoch, told])
        if number % _DROP_TURNS_EVERY == 0:
            db.execute("DELETE FROM turns WHERE number <= ?", [number - TURNS_KEPT])

    def _note(self, number: int, batch: Batch) -> None:
        del batch
        self.noted(number)

    def _sync_notes(self) -> None:
        """Check the connection, so that an idle master notices a lost server within seconds."""
        if not self._broken and self._line.has_news():
            try:
                self._line.own("SELECT 1")
            except psycopg.Error as error:
                words = str(error).strip().replace("\n", "; ")
                self._lost_line(CommitFailed(f"the database has ended the line: {words}"))

    def _failure_of(self, work: Callable[[PostgresLine], None]) -> BaseException | None:
        line = self._line
        line.warned, self._committing = "", False
        try:
            with line.pipelined():
                line.own("BEGIN")
                line.own("SELECT hold_fence($1)", [self.fence.epoch])
                work(line)
                self._committing = True
                line.own("COMMIT")
        except psycopg.Error as error:
            return self._judged(error)
        except BaseException as error:  # noqa: BLE001 - handed to the awaiting loop, which dies of it
            self._roll_back()
            return error
        if line.warned:  # above all: the commit did not wait for the standby
            return CommitUnknown(f"a commit may be lost: {line.warned}", error="WARNING")
        return None

    def _judged(self, error: psycopg.Error) -> CommitFailed:
        """The failure: a refusal is certain, a connection lost during COMMIT is not."""
        error = _cause_of(error)
        state = error.sqlstate or ""
        words = str(error).strip().replace("\n", "; ") or type(error).__name__
        failure: CommitFailed
        if self._committing and (self._line.broken or not state):
            failure = CommitUnknown(f"the outcome of a commit is unknown: {words}", error=state)
        elif state == FENCED_STATE:
            failure = FencedOff(f"this master has been replaced: {words}", error=state)
        else:
            failure = CommitFailed(f"a commit failed: {words} ({state})", error=state)
        self._roll_back()
        failure.__cause__ = error
        return failure

    def _roll_back(self) -> None:
        with suppress(psycopg.Error):
            self._line.own("ROLLBACK")

    def _is_full(self, error: BaseException) -> bool:
        return (
            isinstance(error, CommitFailed)
            and not isinstance(error, CommitUnknown)
            and error.metadata.get("error") == _FULL
        )

    def _close_line(self) -> None:
        self._line.close()


class PostgresReader(StoreReader):
    """Named queries on the committed state, on two read-only connections.

    The loop reads single rows, one round trip each. Lists are read in a thread.
    """

    def __init__(self, server: PostgresPlace, fence: Fence) -> None:
        quick = FencedLine(server, QUICK_READER)
        try:
            long = FencedLine(server, LONG_READER)
        except BaseException:
            quick.close()
            raise
        quick.fence = long.fence = fence
        self._fence = fence
        super().__init__(quick, long)

    def load(self, window: MemoryWindow = ALL_ENDED) -> Loaded:
        """Everything that a starting master needs, with the epoch of its fence."""
        return with_epoch(super().load(window), self._fence)


def _cause_of(error: psycopg.Error) -> psycopg.Error:
    """The refusal because of which later statements of the pipeline were skipped."""
    first: BaseException | None = error
    while first is not None:
        if isinstance(first, psycopg.Error) and first.sqlstate:
            return first
        first = first.__context__
    return error


def with_epoch(loaded: Loaded, fence: Fence) -> Loaded:
    """The next master's epoch: one above that of meta."""
    told = max(int(loaded.meta.get("epoch", "0")), fence.epoch - 1)
    return replace(loaded, meta={**loaded.meta, "epoch": str(told)}) if loaded.meta else loaded
