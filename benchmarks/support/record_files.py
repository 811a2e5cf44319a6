"""Record files of the profiler, written byte by byte as its library lays them out."""

from __future__ import annotations

import struct

CHUNK_RECORDS = 1024


def record_file(threads: int, records: int, *, step_ns: int = 1000, pid: int = 7) -> bytes:
    """A process whose threads have each made so many sends, a multiple of 1,024, and share them."""
    header = bytearray(4096)
    at = 4096 + 256 * 320, 4096 + 256 * 320 + 4096 * 128
    size = at[1] + records * 64
    numbers = (1, 4096, 64, CHUNK_RECORDS, 224, 256, 320, 128, 4096, 128, 4096, *at, size, 1)
    struct.pack_into("<8s10I4QI", header, 0, b"DLQPROF\0", *numbers)
    struct.pack_into("<I", header, 88, pid)
    struct.pack_into("<I", header, 196, threads)
    chunks = range(records // CHUNK_RECORDS)
    slot = bytearray(320)
    struct.pack_into("<IIQ24xI", slot, 0, 1, 1, records, len(chunks))
    struct.pack_into(f"<{len(chunks)}H", slot, 64, *chunks)
    made = (
        struct.pack("<QQ16xQqIIHHI", number + 1, step_ns * (number + 1), 100, 100, 10, 1, 1, 0, 0)
        for number in range(records)
    )
    table = bytes(slot) * threads
    return bytes(header) + table + bytes(at[1] - 4096 - len(table)) + b"".join(made)
