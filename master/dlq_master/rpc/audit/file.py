"""The audit's file as a port, which tests replace by a full or a broken disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias


class LogFile(Protocol):
    """A file that grows at its end. Every method raises OSError if the disk fails."""

    def size(self) -> int:
        """Its size in bytes."""

    def append(self, data: bytes) -> int:
        """Write at the end; return how many bytes were taken, perhaps fewer than given."""

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to this size."""

    def sync(self) -> None:
        """Wait until everything written is on disk."""

    def close(self) -> None:
        """Close it."""


OpenFile: TypeAlias = Callable[[Path], LogFile]


class DiskFile:
    """A file on a disk. It is unbuffered: appended lines are with the kernel, and survive this
    process.
    """

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._handle = os.open(path, flags, 0o600)
        os.fchmod(self._handle, 0o600)

    def size(self) -> int:
        return os.fstat(self._handle).st_size

    def append(self, data: bytes) -> int:
        return os.write(self._handle, data)

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._handle, size_bytes)

    def sync(self) -> None:
        os.fsync(self._handle)

    def close(self) -> None:
        os.close(self._handle)
