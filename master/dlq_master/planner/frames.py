"""The pipes between the master and the processes that it starts.

A frame is a length and its bytes. The first frame of a process is its greeting.
"""

from __future__ import annotations

import asyncio
import struct

from dlq_master.planner import code

# Four bytes, the highest first.
_LENGTH = struct.Struct(">I")
HEAD = _LENGTH.size
# No state of a cluster is as large, so a longer frame is not ours.
LONGEST = 1 << 28


class BadFrame(ValueError):
    """The bytes are no frame: nothing after them can be trusted either."""


def framed(content: bytes) -> bytes:
    return _LENGTH.pack(len(content)) + content


def length_of(head: bytes) -> int:
    """How many bytes follow these first ones. Raises BadFrame for more than there ever are."""
    (length,) = _LENGTH.unpack(head)
    if length > LONGEST:
        raise BadFrame(f"a frame of {length} bytes")
    return int(length)


async def message(stream: asyncio.StreamReader) -> bytes:
    """The content of the next frame. Raises BadFrame, IncompleteReadError."""
    return await stream.readexactly(length_of(await stream.readexactly(HEAD)))


async def greeted(stream: asyncio.StreamReader, own: str) -> None:
    """Returns once it is certain that the process runs the code of which the digest is `own`:
    nothing is asked before. Raises OtherCode, ValueError for what is no greeting,
    IncompleteReadError where it has ended."""
    try:
        code.check(await message(stream), own)
    except asyncio.IncompleteReadError:
        # Half an upgrade may not even start.
        if await asyncio.to_thread(code.digest) != own:
            raise code.OtherCode from None
        raise
