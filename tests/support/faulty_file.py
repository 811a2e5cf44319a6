"""A file under the audit whose disk is full, or broken, when a test says so; else it is the real
one.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from dlq_master.rpc.audit.file import DiskFile


class FaultyDisk:
    """Opens files that share its faults. Its knobs: `room` (bytes that may still be appended, None:
    enough), and `broken` (names of operations that fail with `error`)."""

    def __init__(self) -> None:
        self.room: int | None = None
        self.broken: set[str] = set()
        self.error = errno.EIO

    def open(self, path: Path) -> FaultyFile:
        """What `Chain` and `Audit` are given as `open_file`."""
        self.check("open")
        return FaultyFile(path, self)

    def check(self, operation: str) -> None:
        """OSError if this operation fails now."""
        if operation in self.broken:
            raise OSError(self.error, os.strerror(self.error))


class FaultyFile(DiskFile):
    """A short write takes what there is room for, and the next one fails: as a full disk does
    it.
    """

    def __init__(self, path: Path, disk: FaultyDisk) -> None:
        super().__init__(path)
        self._disk = disk
        self._synced = super().size()

    def append(self, data: bytes) -> int:
        self._disk.check("append")
        room = self._disk.room
        if room is None:
            return super().append(data)
        if room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = super().append(data[:room])
        self._disk.room = room - taken
        return taken

    def truncate(self, size_bytes: int) -> None:
        self._disk.check("truncate")
        super().truncate(size_bytes)

    def sync(self) -> None:
        """A sync that fails loses what was written since the last one, as a disk may do."""
        try:
            self._disk.check("sync")
        except OSError:
            super().truncate(min(self._synced, super().size()))
            raise
        super().sync()
        self._synced = super().size()
