"""The master's disk: what a crash keeps of it, and the door through which one master writes.

A batch is on disk whole or not at all, as a transaction of SQLite is. A master that dies while it
waits for its commit cannot know which: the tape decides. A failed sync ends the process, and the
tape decides again whether its batch is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from dlq_master.model.ids import AttemptKey
from dlq_master.store.batch import Batch
from dlq_master.store.port import CommitFailed
from support.memory_store import MemoryStore
from world.stage.tape import Stream

FAST_S = (0.0005, 0.002, 0.008, 0.03)


class Fence(Protocol):
    """Says whether this master may still write: the lease row of a store that masters share."""

    def holds(self) -> bool: ...


class Sole:
    """One master alone has the database: the file's lock is its fence."""

    def holds(self) -> bool:
        return True


SOLE = Sole()


class Disk:
    """Knobs: `slow_s` more for each commit, `full`, `broken` (syncs fail)."""

    def __init__(self, draws: Stream) -> None:
        self.rows = MemoryStore()
        self.draws = draws
        self.slow_s = 0.0
        self.full = False
        self.broken = False
        self.written: Callable[[Batch, str], None] = lambda batch, writer: None
        """Told of every batch that is on disk, and of the process that has written it."""

    def heal(self) -> None:
        self.slow_s, self.full, self.broken = 0.0, False, False

    def write(self, batch: Batch, writer: str) -> None:
        """It is on disk."""
        self.rows.write(batch)
        self.written(batch, writer)


class Door:
    """One master's way to the disk: the loop's `Store`."""

    def __init__(self, disk: Disk, fence: Fence, writer: str) -> None:
        self._disk = disk
        self._fence = fence
        self._writer = writer
        self._waiting: Batch | None = None
        self._failed = False  # what is written after a failed sync may never be on disk
        self.unacknowledged = 0  # batches on disk of which the master never heard

    async def commit(self, batch: Batch) -> None:
        disk = self._disk
        self._waiting = batch
        await asyncio.sleep(disk.draws.pick(FAST_S) + disk.slow_s)
        if not self._fence.holds():
            self._waiting = None
            raise CommitFailed("another master has the store", error="fenced")
        if disk.full:
            self._waiting = None
            raise CommitFailed("database or disk is full", error="ENOSPC")
        if self._failed:
            self._waiting = None
            return
        if disk.broken:
            self._failed = True
            self._settle()
            raise CommitFailed("disk I/O error", error="EIO")
        self._waiting = None
        disk.write(batch, self._writer)
        await asyncio.sleep(disk.draws.pick(FAST_S))

    async def prune_journal(self, sequences: Sequence[int], horizon: int) -> None:
        await asyncio.sleep(self._disk.slow_s)
        await self._disk.rows.prune_journal(sequences, horizon)

    async def drop_steps(self, keys: Sequence[AttemptKey]) -> None:
        await self._disk.rows.drop_steps(keys)

    async def back_up(self) -> Path | None:
        """Somebody else makes copies."""
        return None

    def died(self) -> bool:
        """The master is gone. True if it leaves a batch on disk of which it never heard."""
        return self._settle()

    def _settle(self) -> bool:
        batch, self._waiting = self._waiting, None
        kept = batch is not None and self._disk.draws.below(2) == 1 and self._fence.holds()
        if kept:
            assert batch is not None
            self._disk.write(batch, self._writer)
            self.unacknowledged += 1
        return kept
