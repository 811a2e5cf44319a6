"""Made-up recordings: what the libraries would write while gloo or parameter servers move bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np

from dlq_profiler.records.layout import (
    CONN,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    RECORD,
    THREAD,
    VERSION,
    ConnKind,
    Op,
    RecordFlag,
    RecordSource,
    Side,
    Unseen,
)
from dlq_profiler.records.recording import RecordFile
from dlq_profiler.records.requests import Records

SEGMENT = 1 << 20  # gloo's largest
PREAMBLE = 48
EAGAIN = 11
FILE = {
    "chunk_records": 64,
    "chunks": 256,
    "thread_slots": 4,
    "thread_chunks": 128,
    "conn_slots": 64,
}


@dataclass(slots=True)
class Tape:
    """The calls of one process, written as time goes on; `now_ns` is its clock."""

    draw: Random
    trouble: float = 0.0  # how many of the sends are taken in part, or not at once
    now_ns: int = 1_000_000_000
    rows: list[tuple[int, ...]] = field(default_factory=list)
    conns: list[tuple[object, ...]] = field(default_factory=list)

    def connection(self, remote: str, port: int, side: Side, local_port: int = 40_000) -> int:
        """A new TCP connection; its number in records."""
        self.conns.append((
            1, ConnKind.SOCKET, len(self.conns) + 1, self.now_ns, 0, 20 + len(self.conns), 2, 1,
            side, local_port, port, 0, 0, 0, bytes((10, 0, 0, 1)), _ipv4(remote), b"", b"",
        ))  # fmt: skip
        return len(self.conns)

    def communicator(self, ranks: int, rank: int) -> int:
        """A new NCCL communicator; its number in records."""
        self.conns.append((
            1, ConnKind.COMMUNICATOR, 0xC0, self.now_ns, 0, rank, 0, 0, 0, 0, 0, 0, ranks, 1, b"", b"",  # noqa: E501
            b"", b"",
        ))  # fmt: skip
        return len(self.conns)

    def wait(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)

    def call(
        self, op: Op, conn: int, size: int, *, done: int | None = None, address: int = 0,
        slot: int | None = None, flags: int = 0, took_ns: int = 20_000,
    ) -> None:  # fmt: skip
        """One call."""
        flags |= 0 if slot is None else RecordFlag.GLOO
        done = size if done is None else done
        self.rows.append(
            (0, self.now_ns, address, slot or 0, size, done, took_ns, conn, op, flags, 0)
        )
        self.now_ns += took_ns + 1_000

    def send(self, conn: int, size: int, address: int, slot: int | None = None) -> None:
        """One request of `size` bytes at `address`; with a slot after gloo's preamble."""
        before = 0 if slot is None else PREAMBLE
        op = Op.SENDTO if slot is None else Op.WRITEV
        left = size + before
        first = slot
        while left and self.draw.random() < self.trouble:
            if self.draw.random() < 0.4:
                self.call(op, conn, left, done=-EAGAIN, address=address, slot=first)
                continue
            some = self.draw.randrange(1, left + 1)
            self.call(op, conn, left, done=some, address=address, slot=first)
            if first is not None or before:
                address += max(0, some - before)
                before = max(0, before - some)
            else:
                address += some
            left, first = left - some, None
        if left:
            self.call(op, conn, left, address=address, slot=first)

    def records(self) -> Records:
        found = np.array(self.rows, RECORD) if self.rows else np.empty(0, RECORD)
        return found[np.argsort(found["ts_ns"], kind="stable")]

    def recording(self, pid: int = 100, **fields: object) -> RecordFile:
        """As if it had been read from a file."""
        records = self.records()
        facts: dict[str, object] = {
            "path": Path(f"{pid}-1.dlqprof"), "source": RecordSource.PRELOAD, "pid": pid,
            "start_ticks": 7, "opened_ns": 0, "comm": "python", "exe": "python",
            "identity": {}, "unseen": Unseen(0), "records": records, "lost": 0, "whole_from_ns": 0,
            "conns": np.array(self.conns, CONN) if self.conns else np.empty(0, CONN), **fields,
        }  # fmt: skip
        return RecordFile(**facts)  # type: ignore[arg-type]  # a builder takes any field


def ring_rank(
    layouts: Sequence[Sequence[int]], *, rank: int = 0, ranks: int = 4, compute_s: float = 0.3,
    trouble: float = 0.2, seed: int = 1, noise: bool = True,
) -> Tape:  # fmt: skip
    """A rank of a ring all-reduce by gloo: for each iteration the sizes of its buckets.

    Equal layouts have the same buffers, as in PyTorch; two buckets at a time interleave. `noise`: a
    rendezvous and a logger that have nothing to do with it.
    """
    tape = Tape(Random(f"{seed}/{rank}"), trouble)
    after = tape.connection("10.0.0.2", 5000 + rank, Side.CONNECTED)
    other = tape.connection("10.0.0.9", 29500, Side.CONNECTED)
    addresses: dict[tuple[int, ...], list[int]] = {}
    free = 0x7F00_0000_0000
    tag = 0
    if noise:
        for number in range(40):
            tape.send(other, 17 + number % 5, 0x5500_0000)
        tape.send(after, sum(layouts[0]), free, slot=6 << 56 | 1 << 24)  # the first parameters
    for layout in layouts:
        key = tuple(layout)
        if key not in addresses:
            addresses[key] = []
            for size in layout:
                addresses[key].append(free)
                free += size + 64  # as near to each other as an allocator puts them
        tape.wait(compute_s * tape.draw.uniform(0.95, 1.05))
        pending: list[list[tuple[int, int, int]]] = []
        for size, address in zip(layout, addresses[key], strict=True):
            tag += 1
            pending.append(_segments(size, address, 4 << 56 | tag << 24, rank, ranks))
            if len(pending) == 2:
                _interleave(tape, after, pending)
            tape.wait(compute_s * 0.02)
        while pending:
            _interleave(tape, after, pending)
        if noise:
            tape.send(other, tape.draw.randrange(100, 900), 0x5600_0000 + tape.draw.randrange(4096))
    return tape


def _segments(
    size: int, address: int, slot: int, rank: int, ranks: int
) -> list[tuple[int, int, int]]:
    """What one rank sends of a buffer: all chunks but one to be added up, then all but one as
    sums.
    """
    elements = size // 4
    share = -(-elements // ranks)
    edges = [min(elements, share * place) * 4 for place in range(ranks + 1)]
    order = [(rank - step) % ranks for step in range(ranks - 1)]
    order += [(rank + 1 - step) % ranks for step in range(ranks - 1)]
    parts = []
    for chunk in order:
        begin, end = edges[chunk], edges[chunk + 1]
        step = min(SEGMENT, max(4, -(-(end - begin) // 8) * 4))
        parts += [
            (address + place, min(step, end - place), slot) for place in range(begin, end, step)
        ]
    return parts


def _interleave(tape: Tape, conn: int, pending: list[list[tuple[int, int, int]]]) -> None:
    """Send until one of the buffers is done; whose turn it is, is chance."""
    while pending and all(pending):
        which = tape.draw.randrange(len(pending))
        address, size, slot = pending[which].pop(0)
        tape.send(conn, size, address, slot)
    pending[:] = [parts for parts in pending if parts]


def server_job(
    sizes: Sequence[int], *, servers: int = 2, workers: int = 2, iterations: int = 6,
    compute_s: float = 0.2, trouble: float = 0.1, seed: int = 1,
) -> dict[str, Tape]:  # fmt: skip
    """Workers push each tensor to a server, round robin, and pull all of them back."""
    tapes: dict[str, Tape] = {}
    for number in range(workers):
        tape = tapes[f"worker{number}"] = Tape(Random(f"{seed}/w{number}"), trouble)
        to = [tape.connection("10.0.0.5", 7000 + one, Side.CONNECTED) for one in range(servers)]
        for _ in range(iterations):
            tape.wait(compute_s * tape.draw.uniform(0.97, 1.03))
            for place, size in enumerate(sizes):
                tape.send(to[place % servers], 16, 0x1000)
                tape.send(to[place % servers], size, 0x7F00_0000_0000 + (place << 32))
            for place in range(len(sizes)):
                tape.send(to[place % servers], 16, 0x1000)
    for number in range(servers):
        tape = tapes[f"server{number}"] = Tape(Random(f"{seed}/s{number}"), trouble)
        to = [
            tape.connection("10.0.0.1", 40_000 + one, Side.ACCEPTED, 7000 + number)
            for one in range(workers)
        ]
        for _ in range(iterations):
            tape.wait(compute_s)
            for place, size in enumerate(sizes):
                if place % servers == number:
                    for conn in to:
                        tape.send(conn, size, 0x7E00_0000_0000 + (place << 32))
    return tapes


def collective_rank(
    layouts: Sequence[Sequence[tuple[Op, int]]], *, ranks: int = 8, compute_s: float = 0.1
) -> Tape:
    """NCCL's calls: for each iteration what is called, and for how many bytes."""
    tape = Tape(Random(1))
    conn = tape.communicator(ranks, 0)
    for layout in layouts:
        tape.wait(compute_s)
        for place, (op, size) in enumerate(layout):
            tape.call(op, conn, size, done=0, address=0x7F00_0000_0000 + (place << 32))
            tape.wait(compute_s * 0.01)
    return tape


def write_file(
    path: Path, tape: Tape, *, threads: int = 1, heads: Mapping[int, int] | None = None,
    identity: str = "", pid: int = 100, **header: object,
) -> Path:  # fmt: skip
    """A record file as the libraries leave it: the calls dealt out over threads' rings.

    `heads`: threads that wrote more than their ring holds. Header fields may be given wrong.
    """
    layout = {**FILE, **{name: value for name, value in header.items() if name in FILE}}
    conns = np.array(tape.conns, CONN) if tape.conns else np.empty(0, CONN)
    per_chunk, chunks = int(layout["chunk_records"]), int(layout["chunks"])  # type: ignore[call-overload]
    thread_bytes = THREAD.itemsize + 2 * int(layout["thread_chunks"])  # type: ignore[call-overload]
    thread_offset = HEADER_BYTES
    conn_offset = thread_offset + int(layout["thread_slots"]) * thread_bytes  # type: ignore[call-overload]
    chunk_offset = conn_offset + int(layout["conn_slots"]) * CONN.itemsize  # type: ignore[call-overload]
    file_bytes = chunk_offset + chunks * per_chunk * RECORD.itemsize
    head = np.zeros(1, HEADER)
    facts = {
        "magic": MAGIC, "version": VERSION, "header_bytes": HEADER_BYTES,
        "record_bytes": RECORD.itemsize, "thread_bytes": thread_bytes, "conn_bytes": CONN.itemsize,
        **layout, "thread_offset": thread_offset, "conn_offset": conn_offset,
        "chunk_offset": chunk_offset, "file_bytes": file_bytes, "source": RecordSource.PRELOAD, "pid": pid,  # noqa: E501
        "parent_pid": 1, "start_ticks": 7, "conns_used": len(conns), "threads_used": threads,
        "comm": b"python", "exe": b"/usr/bin/python", "identity": identity.encode(),
        **header,
    }  # fmt: skip
    for name, value in facts.items():
        head[name] = value
    raw = bytearray(file_bytes)
    raw[:HEADER_BYTES] = head.tobytes()
    raw[conn_offset : conn_offset + conns.nbytes] = conns.tobytes()
    records, used = tape.records(), 0
    for thread in range(threads):
        mine = records[thread::threads].copy()
        mine["seq"] = np.arange(1, len(mine) + 1)
        room = (heads or {}).get(thread, -(-len(mine) // per_chunk) * per_chunk) // per_chunk
        ring = np.zeros(room * per_chunk, RECORD)
        for place in range(max(0, len(mine) - len(ring)), len(mine)):
            ring[place % len(ring)] = mine[place]
        slot = np.zeros(1, THREAD)
        slot["used"], slot["tid"], slot["head"], slot["chunks"] = 1, 1 + thread, len(mine), room
        begin = thread_offset + thread * thread_bytes
        listed = struct.pack(f"<{room}H", *range(used, used + room))
        raw[begin : begin + THREAD.itemsize + len(listed)] = slot.tobytes() + listed
        at = chunk_offset + used * per_chunk * RECORD.itemsize
        raw[at : at + ring.nbytes] = ring.tobytes()
        used += room
    path.write_bytes(raw)
    return path


def _ipv4(text: str) -> bytes:
    return bytes(int(part) for part in text.split("."))


def ring_job(layouts: Iterable[Sequence[int]], *, ranks: int, **kwargs: object) -> list[RecordFile]:
    """A recording of each rank."""
    every = list(layouts)
    return [
        ring_rank(every, rank=rank, ranks=ranks, **kwargs).recording(  # type: ignore[arg-type]
            pid=100 + rank, identity={"RANK": str(rank), "WORLD_SIZE": str(ranks)}
        )
        for rank in range(ranks)
    ]
