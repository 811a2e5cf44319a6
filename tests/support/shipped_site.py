"""A database with its writer and its shipping in one process, and a place that takes the files."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path

from dlq_master.model.ids import JobId
from dlq_master.shipping.child import SealedLogs
from dlq_master.shipping.place import Directory
from dlq_master.shipping.shipper import SEALED, Assignment, Shipper
from dlq_master.store.batch import Batch
from dlq_master.store.sqlite.halves import Writer
from dlq_master.store.sqlite.open import connect, create_database
from support.fake_clock import FakeClock
from support.stored_values import a_job


class FullPlace(Directory):
    """A directory that takes no more when a test says so."""

    full = False

    def put(self, name: str, parts: Iterable[bytes], *, settled: bool = True) -> None:
        self._check()
        super().put(name, parts, settled=settled)

    def settle(self, name: str) -> None:
        self._check()
        super().settle(name)

    def append(self, name: str, at: int, data: bytes) -> None:
        self._check()
        super().append(name, at, data)

    def _check(self) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class ShippedSite:
    """A state directory, a place, and what was committed so far."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state_dir, self.there = root / "master", root / "there"
        (self.state_dir / SEALED).mkdir(parents=True)
        self.there.mkdir(exist_ok=True)
        self.place = FullPlace(self.there)
        self.database = self.state_dir / "dlq.db"
        self.clock = FakeClock()
        self.number = 0
        create_database(self.database)
        self.writer = Writer(self.database)
        self.writer._db.execute("PRAGMA synchronous = OFF")  # of no interest here, and slow
        self.logs = SealedLogs(self.state_dir / SEALED)
        asyncio.run(self.writer.copy_logs_by(self.logs.copy))

    def commit(self, count: int = 1, spec_bytes: int = 400) -> None:
        """So many batches of one job each."""

        async def commit_all() -> None:
            for _ in range(count):
                self.number += 1
                job = JobId(self.number)
                await self.writer.commit(
                    Batch(jobs=[a_job(job)], specs=[(job, bytes(spec_bytes))], meta={"copy": "no"})
                )

        asyncio.run(commit_all())

    def assignment(self, epoch: int = 1, token: str = "one", system: str = "lab") -> Assignment:
        return Assignment(
            state_dir=str(self.state_dir),
            system=system,
            epoch=epoch,
            token=token,
            host="head",
            every_s=1.0,
            snapshot_every_s=3600.0,
            files={},
        )

    def shipper(
        self, epoch: int = 1, token: str = "one", system: str = "lab",
        passed: Callable[[str], object] = lambda _step: None,
    ) -> Shipper:  # fmt: skip
        return Shipper(self.assignment(epoch, token, system), self.place, self.clock, passed)

    def content(self) -> list[str]:
        """All that the living database holds."""
        with closing(connect(self.database)) as db:
            return list(db.iterdump())


def content_of(database: Path) -> list[str]:
    """All that a database holds that was put together again."""
    with closing(sqlite3.connect(database)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return list(db.iterdump())
