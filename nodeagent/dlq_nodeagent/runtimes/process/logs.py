"""Reads an attempt's log while it is written: the head file, then the ring (shim/logring.c)."""

import os
import struct
from typing import NamedTuple

from dlq_nodeagent.model.port import LogChunk
from dlq_nodeagent.runtimes.process import layout

_HEADER_BYTES = 4096
_HEADER = struct.Struct("<8sqqqqq")
_MAGIC = b"DLQRING1"


class _Ring(NamedTuple):
    head_bytes: int
    ring_bytes: int
    reserved_end: int
    end: int
    dropped: int

    @property
    def oldest(self) -> int:
        """The first logical offset whose place in the ring is not overwritten, or about to be."""
        return max(self.head_bytes, max(self.end, self.reserved_end) - self.ring_bytes)


def read_log(at: int, offset: int, limit: int) -> LogChunk:
    """At most `limit` bytes from logical `offset` of the attempt whose directory `at` is.

    An offset that fell into the gap moves forward to the oldest byte still there; one beyond the
    end moves back to the end. The head and the ring come in separate answers.
    """
    try:
        ring_fd = os.open(layout.LOG_RING, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=at)
    except FileNotFoundError:
        return LogChunk(offset=0, data=b"", end=0)
    try:
        ring = _read_header(ring_fd)
        if ring is None:
            return LogChunk(offset=0, data=b"", end=0)
        offset = min(max(offset, 0), ring.end)
        limit = max(limit, 0)
        if offset < ring.head_bytes:
            return _read_head(at, ring, offset, limit)
        return _read_ring(ring_fd, ring, offset, limit)
    finally:
        os.close(ring_fd)


def _read_header(ring_fd: int) -> _Ring | None:
    raw = os.pread(ring_fd, _HEADER.size, 0)
    if len(raw) < _HEADER.size or not raw.startswith(_MAGIC):
        return None
    return _Ring(*_HEADER.unpack(raw)[1:])


def _read_head(at: int, ring: _Ring, offset: int, limit: int) -> LogChunk:
    length = min(limit, min(ring.head_bytes, ring.end) - offset)
    head_fd = os.open(layout.LOG_HEAD, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=at)
    try:
        return LogChunk(offset=offset, data=os.pread(head_fd, length, offset), end=ring.end)
    finally:
        os.close(head_fd)


def _read_ring(ring_fd: int, ring: _Ring, offset: int, limit: int) -> LogChunk:
    start = max(offset, ring.oldest)
    length = max(0, min(limit, ring.end - start))
    place = (start - ring.head_bytes) % ring.ring_bytes
    first = min(length, ring.ring_bytes - place)
    data = os.pread(ring_fd, first, _HEADER_BYTES + place)
    if length > first:
        data += os.pread(ring_fd, length - first, _HEADER_BYTES)
    after = _read_header(ring_fd) or ring
    overwritten = min(max(0, after.oldest - start), len(data))
    return LogChunk(offset=start + overwritten, data=data[overwritten:], end=after.end)
