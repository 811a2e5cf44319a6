"""The newest sends of the programs of a rank, from their record files, without numpy.

An agent takes such a look every half a minute while a rank is recorded. It tells when the rank last
sent anything, and how long the rank works between its sends. A look reads the ends of the rings
only, so its cost is bounded. Nothing in a file is believed: a job may write there.

The work time of a step is the longest time between two sends of it. A rank that waits for others
has sent its own part before the wait, so that time is its own.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import log
from pathlib import Path
from typing import Final, NamedTuple

MAGIC: Final = b"DLQPROF\0"
SUFFIX: Final = ".dlqprof"
_VERSION, _PRELOAD = 1, 1
_HEADER: Final = struct.Struct("<8s10I4QI")  # up to `source`
_THREADS_USED_AT: Final = 196
_PID_AT: Final = 88
_THREAD: Final = struct.Struct("<IIQ24xI")  # up to `chunks`
_CHUNKS_AT: Final = 64
_RECORD: Final = struct.Struct("<QQ16xQqIIHHI")
_HEADER_BYTES, _THREAD_BYTES, _RECORD_BYTES, _CHUNK_RECORDS = 4096, 320, 64, 1024
_MOST_FILES, _MOST_THREADS, _MOST_CHUNKS, _MOST_RECORDS = 64, 256, 128, 4096
_MOST_OF_ALL: Final = 65_536  # records of a look, shared by the files
_SENDS: Final = frozenset(range(1, 8))  # of sockets
_POSTS: Final = frozenset({64, 65})  # of queue pairs
_LEAST_OF_ALL: Final = 0.01  # a connection with less only keeps in touch
_LEAST_OF_BUSIEST: Final = 0.1  # a process with less takes no part
_FEWEST_GAPS: Final = 10
_FALL: Final = 2.0  # between two lengths: the next ones are of another kind


class LongGaps(NamedTuple):
    """The work times of steps: their number, and sums of their logarithms and the squares."""

    steps: int
    logs: float
    squares: float


class TrafficLook(NamedTuple):
    """A rank's sends: how long ago the last one was, and the longest time between two of them.
    `work`: since the look before; None: too few steps.
    """

    sent_ago_s: float
    quiet_s: float
    work: LongGaps | None


class _Send(NamedTuple):
    begin_ns: int
    end_ns: int
    conn: int
    size: int


def look(directory: Path, now_ns: int, since_ns: int = 0) -> TrafficLook | None:
    """The sends of a rank. `now_ns`, `since_ns`: CLOCK_MONOTONIC, now and at the look before. None:
    it has sent nothing. Raises OSError where there is no such directory.
    """
    processes: dict[int, list[_Send]] = {}
    names = [name for name in sorted(os.listdir(directory)) if name.endswith(SUFFIX)]
    for name in names[:_MOST_FILES]:
        with suppress(OSError, ValueError, struct.error):
            pid, sends = _read(directory / name, _MOST_OF_ALL // min(len(names), _MOST_FILES))
            processes.setdefault(pid, []).extend(sends)
    sizes = {pid: sum(one.size for one in sends) for pid, sends in processes.items()}
    busiest = max(sizes.values(), default=0)
    found = [
        _look_at(_of_busy_connections(sends), now_ns, since_ns)
        for pid, sends in processes.items()
        if sizes[pid] > 0 and sizes[pid] >= _LEAST_OF_BUSIEST * busiest
    ]
    if not found:
        return None
    works = [one.work for one in found if one.work is not None]
    return TrafficLook(
        max(one.sent_ago_s for one in found),
        max(one.quiet_s for one in found),
        max(works, key=lambda work: work.logs / work.steps, default=None),
    )


def long_gaps(gaps_s: list[float]) -> LongGaps | None:
    """The gaps of the longest kind: from the longest one down to the first that is less than half
    of the one before. None: they are too few. Of ten or fewer nobody knows the kind.
    """
    ordered = sorted((gap for gap in gaps_s if gap > 0.0), reverse=True)
    count = len(ordered)
    for place in range(_FEWEST_GAPS, len(ordered)):
        if ordered[place] * _FALL < ordered[place - 1]:
            count = place
            break
    if count < _FEWEST_GAPS:
        return None
    logs = [log(gap) for gap in ordered[:count]]
    return LongGaps(count, sum(logs), sum(value * value for value in logs))


# --- helpers, in order of use ---------------------------------------------------------------------


def _read(path: Path, most: int) -> tuple[int, list[_Send]]:
    """The process of a file, and its newest sends, from at most so many records."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError("it is not a file")
        return _sends_of(fd, most)
    finally:
        os.close(fd)


def _sends_of(fd: int, most: int) -> tuple[int, list[_Send]]:
    raw = os.pread(fd, 256, 0)
    magic, version, *sizes = _HEADER.unpack_from(raw)
    header, record, chunk, _, _, thread, thread_chunks, *_ = sizes
    threads_at, _, chunks_at, _, source = sizes[-5:]
    known = (header, record, chunk, thread) == (
        _HEADER_BYTES,
        _RECORD_BYTES,
        _CHUNK_RECORDS,
        _THREAD_BYTES,
    )
    if magic != MAGIC or version != _VERSION or not known or thread_chunks != _MOST_CHUNKS:
        raise ValueError("it is no record file of this version")
    (pid,) = struct.unpack_from("<I", raw, _PID_AT)
    if source != _PRELOAD:
        return pid, []
    (used,) = struct.unpack_from("<I", raw, _THREADS_USED_AT)
    table = os.pread(fd, min(used, _MOST_THREADS) * _THREAD_BYTES, threads_at)
    found: list[_Send] = []
    for place in range(0, len(table) - _THREAD_BYTES + 1, _THREAD_BYTES):
        slot = table[place : place + _THREAD_BYTES]
        _, _, head, held = _THREAD.unpack_from(slot)
        count = min(head, most, _MOST_RECORDS, held * _CHUNK_RECORDS)
        if 0 < held <= _MOST_CHUNKS and count > 0:
            most -= count
            chunks = struct.unpack_from(f"<{held}H", slot, _CHUNKS_AT)
            found += _tail(fd, head - count, head, chunks, chunks_at)
    return pid, found


def _tail(
    fd: int, number: int, head: int, chunks: Sequence[int], chunks_at: int
) -> Iterator[_Send]:
    """The sends of one thread among its records from `number` on."""
    while number < head:
        inside = number % _CHUNK_RECORDS
        count = min(head - number, _CHUNK_RECORDS - inside)
        chunk = chunks[number // _CHUNK_RECORDS % len(chunks)]
        at = chunks_at + (chunk * _CHUNK_RECORDS + inside) * _RECORD_BYTES
        raw = os.pread(fd, count * _RECORD_BYTES, at)
        for told in _RECORD.iter_unpack(raw[: len(raw) // _RECORD_BYTES * _RECORD_BYTES]):
            number += 1
            seq, begin_ns, asked, result, lasted_ns, conn, op, _, _ = told
            size = result if op in _SENDS else asked if op in _POSTS and result >= 0 else 0
            if seq == number and size > 0 and conn > 0:
                yield _Send(begin_ns, begin_ns + lasted_ns, conn, size)
        if len(raw) < count * _RECORD_BYTES:
            return


def _of_busy_connections(sends: list[_Send]) -> list[_Send]:
    sizes: dict[int, int] = {}
    for one in sends:
        sizes[one.conn] = sizes.get(one.conn, 0) + one.size
    least = _LEAST_OF_ALL * sum(sizes.values())
    return sorted(one for one in sends if sizes[one.conn] >= least)


def _look_at(sends: list[_Send], now_ns: int, since_ns: int) -> TrafficLook:
    """One process, whose sends are in order."""
    gaps_s, last_ns = [], sends[0].end_ns
    quiet_ns = 0
    for one in sends[1:]:
        gap_ns = one.begin_ns - last_ns
        quiet_ns = max(quiet_ns, gap_ns)
        if gap_ns > 0 and one.begin_ns >= since_ns:
            gaps_s.append(gap_ns / 1e9)
        last_ns = max(last_ns, one.end_ns)
    return TrafficLook(max(0, now_ns - last_ns) / 1e9, quiet_ns / 1e9, long_gaps(gaps_s))
