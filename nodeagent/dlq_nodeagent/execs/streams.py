"""Bytes to and from a command's pipes or terminal, no faster than the other side."""

import asyncio
import errno
import os
from collections.abc import Callable

PIECE_BYTES = 64 * 1024


async def read_some(descriptor: int, over: asyncio.Event | None = None) -> bytes:
    """The next bytes, as soon as there are some. Empty at the end, or once all writers are dead
    (`over`) and nothing is left: another process may hold the other end open.

    A terminal ends with EIO once no process has it open any more.
    """
    while True:
        try:
            return os.read(descriptor, PIECE_BYTES)
        except BlockingIOError:
            if over is not None and over.is_set():
                return b""
            await _readable(descriptor, over)
        except OSError as error:
            if error.errno == errno.EIO:
                return b""
            raise


async def write_all(descriptor: int, data: bytes) -> bool:
    """Put everything in, waiting while it is full. False: the reader is gone."""
    loop = asyncio.get_running_loop()
    left = memoryview(data)
    while left:
        try:
            left = left[os.write(descriptor, left) :]
        except BlockingIOError:
            await _ready(descriptor, loop.add_writer, loop.remove_writer)
        except (BrokenPipeError, ConnectionResetError):
            return False
        except OSError as error:
            if error.errno == errno.EIO:
                return False
            raise
    return True


async def ended(pidfd: int) -> None:
    loop = asyncio.get_running_loop()
    await _ready(pidfd, loop.add_reader, loop.remove_reader)


async def _readable(descriptor: int, over: asyncio.Event | None) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Task[object] = asyncio.create_task(
        _ready(descriptor, loop.add_reader, loop.remove_reader)
    )
    waits: set[asyncio.Task[object]] = {ready}
    if over is not None:
        waits.add(asyncio.create_task(over.wait()))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


async def _ready(
    descriptor: int,
    add: Callable[[int, Callable[[], None]], None],
    remove: Callable[[int], bool],
) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def ready() -> None:
        if not future.done():
            future.set_result(None)

    add(descriptor, ready)
    try:
        await future
    finally:
        remove(descriptor)
