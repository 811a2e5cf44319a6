"""The master's end of the pipes of a process that it has started: whole frames, and first of all
its greeting.
"""

from __future__ import annotations

import asyncio

from dlq_master.planner import code
from dlq_master.planner.frames import HEAD, length_of


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
