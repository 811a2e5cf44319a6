"""The file under the audit, as a port: a test puts one in whose disk is full, or broken."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias


class LogFile(Protocol):
    """A file that grows at its end. Every method raises OSError when the disk does not do it."""

    def size(self) -> int:
        """How long it is, in bytes."""

    def append(self, data: bytes) -> int:
        """Write at the end; how many bytes were taken, which may be fewer than were given."""

    def truncate(self, size_bytes: int) -> None:
        """Cut the file to this length."""

    def sync(self) -> None:
        """Wait until everything written is on disk."""

    def close(self) -> None:
        """Give the file back."""


OpenFile: TypeAlias = Callable[[Path], LogFile]


class DiskFile:
    """The real one. Unbuffered: appended lines are with the kernel, and survive our own death."""

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
