"""Committed pages of a write-ahead log, read beside the process that writes it.

SQLite keeps the number of committed frames in the index file `-shm`. Its header stands there twice,
with a checksum, and is renewed after the sync of a commit. A log that begins anew gets new salts
there before its first frame is overwritten. So frames whose salts are the same before and after
they were read are those of a commit. The formats are in SQLite's walformat.html.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_HEADER: Final = struct.Struct("=IIIBBHIIII8sII")
_VERSION: Final = 3007000
_INDEX_BYTES: Final = 2 * _HEADER.size
_FRAME: Final = struct.Struct(">II8s")
LOG_HEADER_BYTES: Final = 32
FRAME_HEADER_BYTES: Final = 24
_AT_ONCE: Final = 1000  # frames of one read
_TRIES: Final = 50


class LogMoved(Exception):
    """The log has begun anew meanwhile, or is none that can be read now."""


@dataclass(frozen=True, slots=True)
class Extent:
    """A log up to a commit: `salts` tell its generations apart. `commits` counts those of all
    generations, from some beginning on.
    """

    salts: bytes
    frames: int
    page_bytes: int
    commits: int = 0

    def follows(self, salts: bytes) -> bool:
        """Whether this is the generation after the one of these salts."""
        before = int.from_bytes(salts[:4])
        return int.from_bytes(self.salts[:4]) == (before + 1) % (1 << 32)


@dataclass(slots=True)
class ChangedPages:
    """The newest content of each page that commits have changed, and the size after the last."""

    page_count: int = 0
    commits: int = 0
    content: dict[int, bytes] = field(default_factory=dict)


class LogIndex:
    """The index of one log. It stays open for the life of the process: to close it would drop the
    locks that SQLite holds on it for this process.
    """

    def __init__(self, database: Path) -> None:
        """Raises OSError when no process has this database open."""
        self._handle = os.open(f"{database}-shm", os.O_RDONLY | os.O_CLOEXEC)

    def now(self) -> Extent:
        """The last commit. Raises LogMoved when the header never stands still."""
        for _ in range(_TRIES):
            extent = _extent(os.pread(self._handle, _INDEX_BYTES, 0))
            if extent is not None:
                return extent
        raise LogMoved("the index of the log cannot be read")


def read_pages(handle: int, extent: Extent, after: int, into: ChangedPages) -> None:
    """Add the pages of the frames behind `after`. Raises LogMoved when one is of another
    generation.
    """
    size = FRAME_HEADER_BYTES + extent.page_bytes
    for first in range(after, extent.frames, _AT_ONCE):
        count = min(_AT_ONCE, extent.frames - first)
        data = os.pread(handle, count * size, LOG_HEADER_BYTES + first * size)
        if len(data) != count * size:
            raise LogMoved("the log is shorter than its index says")
        for at in range(0, len(data), size):
            number, commit, salts = _FRAME.unpack_from(data, at)
            if salts != extent.salts:
                raise LogMoved("a frame is of another generation")
            into.content[number] = data[at + FRAME_HEADER_BYTES : at + size]
            into.page_count = commit or into.page_count
            into.commits += bool(commit)


def sealed_extent(handle: int) -> Extent:
    """Of a whole generation that was copied into a file of its own."""
    header = os.pread(handle, LOG_HEADER_BYTES, 0)
    if len(header) != LOG_HEADER_BYTES:
        raise LogMoved("a copy of the log has no header")
    page_bytes = int.from_bytes(header[8:12])
    behind = os.fstat(handle).st_size - LOG_HEADER_BYTES
    return Extent(header[16:24], behind // (FRAME_HEADER_BYTES + page_bytes), page_bytes)


def _extent(data: bytes) -> Extent | None:
    half = _HEADER.size
    if len(data) != _INDEX_BYTES or data[:half] != data[half:]:
        return None
    fields = _HEADER.unpack_from(data)
    version = fields[0]
    commits, is_made, page_bytes, frames, salts = (fields[at] for at in (2, 3, 5, 6, 10))
    if version != _VERSION or not is_made or _checksum(data[: half - 8]) != fields[11:]:
        return None
    return Extent(salts, frames, 65536 if page_bytes == 1 else page_bytes, commits)


def _checksum(data: bytes) -> tuple[int, int]:
    one = two = 0
    words = struct.unpack(f"={len(data) // 4}I", data)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two
