"""Reads an attempt's log while it is written: the head file, then the ring (shim/logring.c).

torchrun's own logs show how often it has started its workers again. They belong to the job: nothing
is followed, only directories of its user are listed, and never many.
"""

import os
import re
import struct
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from dlq_nodeagent.jobtree.files import FILE, opened
from dlq_nodeagent.model.port import LogChunk
from dlq_nodeagent.runtimes.process import layout
from dlq_nodeagent.runtimes.process.layout import JOB

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
    with suppress(FileNotFoundError), opened(layout.LOG_RING, FILE, at=at) as ring_fd:
        ring = _read_header(ring_fd)
        if ring is None:
            return LogChunk(offset=0, data=b"", end=0)
        offset = min(max(offset, 0), ring.end)
        limit = max(limit, 0)
        if offset < ring.head_bytes:
            return _read_head(at, ring, offset, limit)
        return _read_ring(ring_fd, ring, offset, limit)
    return LogChunk(offset=0, data=b"", end=0)


def _read_header(ring_fd: int) -> _Ring | None:
    raw = os.pread(ring_fd, _HEADER.size, 0)
    if len(raw) < _HEADER.size or not raw.startswith(_MAGIC):
        return None
    return _Ring(*_HEADER.unpack(raw)[1:])


def _read_head(at: int, ring: _Ring, offset: int, limit: int) -> LogChunk:
    length = min(limit, min(ring.head_bytes, ring.end) - offset)
    with opened(layout.LOG_HEAD, FILE, at=at) as head_fd:
        return LogChunk(offset=offset, data=os.pread(head_fd, length, offset), end=ring.end)


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


LOGS = "torchrun"  # in the job's own directory; below it RUN/attempt_N
_START = re.compile(r"attempt_(\d{1,4})", re.ASCII)
_MOST = 64


def highest_start(at: int, *, uid: int) -> int:
    """The highest N of all, with the attempt's directory open as `at`; 0: none."""
    found = 0
    with suppress(OSError), opened(JOB, at=at) as job, opened(LOGS, at=job) as logs:
        for run in _names(logs, uid):
            with suppress(OSError), opened(run, at=logs) as starts:
                numbers = (_START.fullmatch(name) for name in _names(starts, uid))
                found = max([found, *(int(each[1]) for each in numbers if each)])
    return found


def _names(directory: int, uid: int) -> list[str]:
    if os.fstat(directory).st_uid != uid:
        return []
    with os.scandir(directory) as entries:
        return [entry.name for entry in islice(entries, _MOST)]
