"""The master's disk: what a crash keeps of it, and the door through which one master writes.

A batch is on disk whole or not at all, as a transaction of SQLite is: what is torn at the end of
its log does not count. A master that dies while it waits for its commit cannot know which: the tape
decides. A failed sync ends the process, and the tape decides again whether its batch is there.

While the master is dead a bit may turn, or reads may fail. No start may serve then, until somebody
puts a copy of the rows in their place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from dlq_common.errors import DlqError
from dlq_master.model.ids import AttemptKey
from dlq_master.store.batch import Batch, Loaded, MemoryWindow
from dlq_master.store.port import CommitFailed
from dlq_master.store.tables import codec
from support.memory_store import MemoryStore
from world.stage.tape import Stream

FAST_S = (0.0005, 0.002, 0.008, 0.03)


class DiskHarmed(DlqError):
    """What a start says of rows that the disk has changed, or does not give."""


class Fence(Protocol):
    """Says whether this master may still write: the lease row of a store that masters share."""

    def holds(self) -> bool: ...


class Sole:
    """One master alone has the database: the file's lock is its fence."""

    def holds(self) -> bool:
        return True


SOLE = Sole()


class Disk:
    """Knobs: `slow_s` more for each commit, `full`, `broken` (syncs fail), `unreadable`."""

    def __init__(self, draws: Stream) -> None:
        self.rows = MemoryStore()
        self.draws = draws
        self.slow_s = 0.0
        self.full = False
        self.broken = False
        self.unreadable = False
        self._turned: tuple[dict[Any, str], Any, str] | None = None  # a body as the disk gives it
        self.written: Callable[[Batch, str], None] = lambda batch, writer: None
        """Told of every batch that is on disk, and of the process that has written it."""

    def heal(self) -> None:
        self.slow_s, self.full, self.broken, self.unreadable = 0.0, False, False, False
        self.restore()

    def turn_a_bit(self) -> str:
        """A digit of a stored body is another one; which body it is. "": there is none."""
        rows = self.rows._rows
        found: list[tuple[dict[Any, str], Any]] = [(rows.jobs, key) for key in sorted(rows.jobs)]
        found += [(rows.attempts, key) for key in sorted(rows.attempts)]
        found += [(rows.nodes, key) for key in sorted(rows.nodes)]
        if not found:
            return ""
        bodies, key = self.draws.pick(found)
        body = bodies[key]
        digits = [at for at, letter in enumerate(body[:-16]) if letter.isdigit()]
        at = self.draws.pick(digits)
        self._turned = bodies, key, f"{body[:at]}{chr(ord(body[at]) ^ 1)}{body[at + 1 :]}"
        return f"{type(key).__name__} {key}"

    def restore(self) -> None:
        """A whole copy of the rows is in their place."""
        self._turned = None

    @property
    def harmed(self) -> bool:
        """No start may serve."""
        return self.unreadable or self._turned is not None

    def load(self, window: MemoryWindow) -> Loaded:
        """What a start reads, after a look at all bodies. Raises DiskHarmed."""
        if self.unreadable:
            raise DiskHarmed("disk I/O error in a read")
        if self._turned is None:
            return self.rows.load(window)
        bodies, key, body = self._turned
        if not codec.is_intact(body):
            raise DiskHarmed("a stored body does not match its checksum")
        whole, bodies[key] = bodies[key], body
        try:
            return self.rows.load(window)
        finally:
            bodies[key] = whole

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
