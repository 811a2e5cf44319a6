"""A stream of a caller through the relay beside the master, as `passing.CallerStream` wants it.

When the relay, its master or the line dies, the stream is lost, and the command waits for its
caller. A clean end means that the caller has gone, or may not come any more: the command ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import grpc
from google.protobuf.message import DecodeError

from dlq.v1 import exec_pb2
from dlq_client.inside.relay_line import (
    BEAT_S,
    SILENCE_S,
    LineLost,
    LineOver,
    RelayLine,
    dial,
    stdin_of,
    stdout_head,
)
from dlq_nodeagent.execs.guarded import ready_for
from dlq_nodeagent.execs.passing import Output, heeded

Heard = exec_pb2.RelayedInput | memoryview
"""A message of the caller; or one that is stdin alone, by its bytes."""

_MESSAGES_WAITING = 8
__all__ = ["RelayTalk", "dial"]


class RelayTalk:
    """One joined line. `close` must be called, from the task that made it."""

    def __init__(self, line: RelayLine) -> None:
        self._line = line
        self._speaking = asyncio.Lock()
        self._come: asyncio.Queue[Heard | None] = asyncio.Queue(_MESSAGES_WAITING)
        self._over: asyncio.Future[grpc.StatusCode] = asyncio.get_running_loop().create_future()
        self._tasks = [asyncio.create_task(work) for work in (self._read(), self._beat())]
        self.messages: AsyncIterator[Heard] = self._messages()

    async def spec(self) -> exec_pb2.ExecSpec:
        """The first message. Raises LineLost, and ValueError for another one."""
        first = await self._come.get()
        if first is None:
            raise LineLost("the caller has gone")
        if isinstance(first, memoryview) or not first.spec.resumed:
            raise ValueError("a command does not begin at the relay")
        return first.spec

    async def say(self, output: Output) -> None:
        """Raises LineLost."""
        if isinstance(output, bytes):
            await self._say(stdout_head(len(output)), output)
        else:
            await self._say(output.SerializeToString())

    async def taken(self, _size: int, input_count: int | None) -> None:
        """The command has taken so many inputs in all. The caller bounds the bytes by itself."""
        await self._say(exec_pb2.ExecOutput(input_count=input_count or 0).SerializeToString())

    async def over(self) -> grpc.StatusCode:
        """NOT_FOUND: the caller does not come back."""
        return await asyncio.shield(self._over)

    def end(self) -> None:
        """Another stream of the caller has taken over."""
        self._end(grpc.StatusCode.CANCELLED)

    async def close(self) -> None:
        """Let go of the line. It ends cleanly, unless it was lost: then the caller comes back."""
        self._end(grpc.StatusCode.CANCELLED)
        cleanly = self._over.result() is not grpc.StatusCode.UNAVAILABLE
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._line.end(cleanly=cleanly)

    def _end(self, how: grpc.StatusCode) -> None:
        if not self._over.done():
            self._over.set_result(how)
            with suppress(asyncio.QueueFull):
                self._come.put_nowait(None)

    async def _messages(self) -> AsyncIterator[Heard]:
        while not self._over.done() or not self._come.empty():
            message = await self._come.get()
            if message is None:
                return
            yield message

    async def _read(self) -> None:
        """Take everything that comes; the end of the line is the end of the stream."""
        how = grpc.StatusCode.UNAVAILABLE
        try:
            while True:
                for each in self._line.read():
                    await self._come.put(stdin_of(each) or exec_pb2.RelayedInput.FromString(each))
                await self._ready(writing=False)
        except LineOver:
            how = grpc.StatusCode.NOT_FOUND
        except (LineLost, TimeoutError, ValueError, DecodeError):
            pass
        self._end(how)

    async def _beat(self) -> None:
        while not self._over.done():
            await asyncio.sleep(BEAT_S)
            with suppress(LineLost):
                await self.taken(0, 0)

    async def _say(self, message: bytes, rest: bytes = b"") -> None:
        """Whole messages only, even if the caller of this is cancelled meanwhile. Mostly there is
        room at once, and no task is made.
        """
        if self._speaking.locked():
            saying = asyncio.ensure_future(self._write(message, rest))
        else:
            await self._speaking.acquire()  # it is free: this does not wait
            if self._begun(message, rest):
                return
            saying = asyncio.ensure_future(self._write_on())
        saying.add_done_callback(heeded)
        await asyncio.shield(saying)

    def _begun(self, message: bytes, rest: bytes) -> bool:
        """Whether it is out already; then others may speak."""
        self._line.begin(message, rest)
        try:
            done = not self._over.done() and self._line.write()
        except LineLost:
            done = False  # and told by the next try
        if done:
            self._speaking.release()
        return done

    async def _write(self, message: bytes, rest: bytes) -> None:
        await self._speaking.acquire()
        self._line.begin(message, rest)
        await self._write_on()

    async def _write_on(self) -> None:
        try:
            while self._over.done() or not self._line.write():
                if self._over.done():
                    raise LineLost("the line is over")
                await self._ready(writing=True)
        except TimeoutError:
            raise LineLost("the caller takes nothing") from None
        except LineLost:
            # Its reader knows whether the caller has ended it; it is at the end soon.
            with suppress(TimeoutError):
                await asyncio.wait_for(self.over(), 1.0)
            self._end(grpc.StatusCode.UNAVAILABLE)
            raise
        finally:
            self._speaking.release()

    async def _ready(self, *, writing: bool) -> None:
        loop, descriptor = asyncio.get_running_loop(), self._line.fileno()
        if descriptor < 0:
            raise LineLost("the line is closed")
        add, remove = loop.add_reader, loop.remove_reader
        if writing:
            add, remove = loop.add_writer, loop.remove_writer
        async with asyncio.timeout(SILENCE_S):
            await ready_for(descriptor, add, remove)
