"""One record file: the records of a process, and the number of lost ones. Safe to read while it
grows.

Nothing in a file is believed: it lies where the job may write. It is read, never mapped, because a
mapped file that is cut short ends the reader. Every number in it is checked before use.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dlq_profiler.records.layout import (
    CONN,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    RECORD,
    THREAD,
    VERSION,
    ConnKind,
    RecordSource,
    Unseen,
)
from dlq_profiler.records.requests import Records

LARGEST_FILE = 256 << 20  # bytes; the libraries write sixteen times less
_MOST_SLOTS = 65_536


class RecordingError(Exception):
    """A file that cannot be used; `str()` is one line that says which and why."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"cannot use {path}: {why}")
        self.path = path
        self.why = why


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFile:
    """One process image as one library recorded it.

    `start_ticks` and `pid` are the process' identity on its host. `lost`: records that were
    overwritten, refused, or torn when the file was read.
    """

    path: Path
    source: RecordSource
    pid: int
    start_ticks: int
    opened_ns: int
    comm: str
    exe: str
    identity: Mapping[str, str]
    unseen: Unseen
    records: Records  # by time
    conns: NDArray[np.void]  # `conn` i + 1 of a record is entry i
    lost: int
    whole_from_ns: int  # of earlier calls some were overwritten


def read_recording(path: Path) -> RecordFile:
    """Read one file. Raises RecordingError for anything that is not one, or not whole."""
    try:
        # A link or a pipe that another program put there is refused.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise RecordingError(path, (error.strerror or str(error)).lower()) from None
    try:
        return _read(path, fd)
    finally:
        os.close(fd)


def _read(path: Path, fd: int) -> RecordFile:
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise RecordingError(path, "it is not a file")
    header = _header(path, fd, found.st_size)
    conns = _table(path, fd, header, "conn", CONN)
    conns = conns[: min(int(header["conns_used"]), len(conns))]
    threads = _table(path, fd, header, "thread", THREAD)
    threads = threads[: min(int(header["threads_used"]), len(threads))]
    records, lost, whole_from_ns = _records(path, fd, header, threads)
    # The table was full, or a connection is not ready yet.
    records["conn"][records["conn"] > len(conns)] = 0
    lost += int(np.count_nonzero(records["conn"] == 0))
    return RecordFile(
        path=path,
        source=RecordSource(int(header["source"])),
        pid=int(header["pid"]),
        start_ticks=int(header["start_ticks"]),
        opened_ns=int(header["opened_ns"]),
        comm=_text(header["comm"]),
        exe=_text(header["exe"]),
        identity=_identity(header["identity"]),
        unseen=Unseen(int(header["flags"]) & int(~Unseen(0))),
        records=records,
        conns=conns,
        lost=lost + sum(int(header[f"lost_{why}"]) for why in ("threads", "space", "reentry")),
        whole_from_ns=whole_from_ns,
    )


def _header(path: Path, fd: int, size: int) -> np.void:
    raw = _bytes(path, fd, 0, HEADER_BYTES) if size >= HEADER_BYTES else b""
    if raw[:8] != MAGIC:
        raise RecordingError(path, "it is no record file of the profiler, or is not ready yet")
    header: np.void = np.frombuffer(raw, HEADER)[0]
    if header["version"] != VERSION:
        raise RecordingError(
            path, f"it has version {header['version']} of the format, this reads {VERSION}"
        )
    if header["source"] not in set(RecordSource):
        raise RecordingError(path, f"its source {header['source']} is not known")
    if not size <= LARGEST_FILE or header["file_bytes"] > LARGEST_FILE:
        raise RecordingError(path, "it is larger than any record file")
    if size < header["file_bytes"]:
        raise RecordingError(
            path, f"it is cut short: {size} of {int(header['file_bytes'])} bytes are there"
        )
    thread_bytes = THREAD.itemsize + 2 * int(header["thread_chunks"])
    sizes = (
        header["header_bytes"] == HEADER_BYTES
        and header["record_bytes"] == RECORD.itemsize
        and header["conn_bytes"] == CONN.itemsize
        and header["thread_bytes"] == thread_bytes
        and 0 < header["chunk_records"] <= _MOST_SLOTS
        and max(header["thread_slots"], header["conn_slots"], header["chunks"]) <= _MOST_SLOTS
    )
    if not sizes or not _fits(header):
        raise RecordingError(path, "its header contradicts itself")
    return header


def _fits(header: np.void) -> bool:
    chunk_bytes = int(header["chunk_records"]) * RECORD.itemsize
    parts = (
        (int(header["thread_offset"]), int(header["thread_slots"]) * int(header["thread_bytes"])),
        (int(header["conn_offset"]), int(header["conn_slots"]) * CONN.itemsize),
        (int(header["chunk_offset"]), int(header["chunks"]) * chunk_bytes),
    )
    return all(
        begin >= HEADER_BYTES and begin + length <= int(header["file_bytes"])
        for begin, length in parts
    )


def _table(
    path: Path, fd: int, header: np.void, what: str, kind: np.dtype[np.void]
) -> NDArray[np.void]:
    stride = int(header[f"{what}_bytes"])
    slots = int(header[f"{what}_slots"])
    if what == "thread":
        kind = np.dtype([*_fields(kind), ("chunk", "<u2", (int(header["thread_chunks"]),))])
    raw = _bytes(path, fd, int(header[f"{what}_offset"]), slots * stride)
    return np.frombuffer(raw, kind)


def _fields(kind: np.dtype[np.void]) -> list[tuple[str, np.dtype[np.generic]]]:
    return [(name, kind[name]) for name in kind.names or ()]


def _records(
    path: Path, fd: int, header: np.void, threads: NDArray[np.void]
) -> tuple[Records, int, int]:
    """All records by time, how many are missing, and since when none is."""
    per_chunk = int(header["chunk_records"])
    chunk_bytes = per_chunk * RECORD.itemsize
    rings, lost, whole_from_ns = [], 0, 0
    for thread in threads[threads["used"] == 1]:
        held = thread["chunk"][: int(thread["chunks"])]
        if np.any(held >= header["chunks"]):
            raise RecordingError(path, "a thread's ring lies outside of the file")
        raw = b"".join(
            _bytes(path, fd, int(header["chunk_offset"]) + int(chunk) * chunk_bytes, chunk_bytes)
            for chunk in held
        )
        head = int(thread["head"])
        kept = _ring(np.frombuffer(raw, RECORD), head)
        missing = head - len(kept)
        lost += missing + int(thread["lost"])
        if missing and len(kept):
            whole_from_ns = max(whole_from_ns, int(kept["ts_ns"][0]))
        rings.append(kept)
    everything = np.concatenate(rings) if rings else np.empty(0, RECORD)
    return everything[np.argsort(everything["ts_ns"], kind="stable")], lost, whole_from_ns


def _ring(ring: Records, head: int) -> Records:
    """The last records of a ring in their order, without the one that is being written."""
    room = len(ring)
    if not room:
        return ring.copy()
    number = np.arange(max(0, head - room), head, dtype=np.uint64)
    found = ring[number % np.uint64(room)]
    kept: Records = found[found["seq"] == number + np.uint64(1)]
    return kept


def _bytes(path: Path, fd: int, begin: int, length: int) -> bytes:
    raw = b""
    while len(raw) < length:
        more = os.pread(fd, length - len(raw), begin + len(raw))
        if not more:
            raise RecordingError(path, "it was cut short while it was read")
        raw += more
    return raw


def _text(field: np.bytes_) -> str:
    return bytes(field).split(b"\0")[0].decode("utf-8", "replace")


def _identity(field: np.bytes_) -> Mapping[str, str]:
    pairs = (line.partition("=") for line in _text(field).splitlines())
    return {key: value for key, equals, value in pairs if equals}


def peer_of(conn: np.void) -> str:
    if conn["kind"] == ConnKind.SOCKET:
        return f"{_address(conn, 'remote')}:{int(conn['remote_port'])}"
    if conn["kind"] == ConnKind.QUEUE_PAIR:
        return f"qp:{bytes(conn['remote_address']).hex()}:{int(conn['remote'])}"
    return f"communicator:{int(conn['id']):x}"


def _address(conn: np.void, end: str) -> str:
    raw = bytes(conn[f"{end}_address"])
    if conn["family"] == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, raw[:4])
    return socket.inet_ntop(socket.AF_INET6, raw)
