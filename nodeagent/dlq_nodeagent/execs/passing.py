"""Bytes between a command and the streams of its caller, both ways, no faster than the slower side.

A caller may come back on another stream. So outputs wait here until the caller has said that they
have come, and inputs are counted.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from signal import Signals
from typing import Protocol

import grpc

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1 import exec_pb2
from dlq_nodeagent.execs.guarded import PIECE_BYTES, Guarded, read_some, write_all
from dlq_nodeagent.line.channel import hang_up

MOST_PIECE_BYTES = 512 * 1024
MOST_UNTAKEN_BYTES = 4 * MOST_PIECE_BYTES
MOST_UNTAKEN = 65_536
"""Inputs of any size, and words such as the size of a terminal."""
# Of outputs that the caller has not confirmed; then the command waits.
MOST_UNCONFIRMED_BYTES = 1 << 20
_MESSAGE_BYTES = 64  # what one costs beside its bytes
END_OF_INPUT = b"\x04"  # Ctrl-D, to which a terminal in its usual mode listens
SIZE = (80, 24)

STREAM_LOST = (grpc.aio.AioRpcError, asyncio.InvalidStateError, ConnectionError)

Call = grpc.aio.StreamStreamCall[wire.ServeExecRequest, wire.ServeExecResponse]


Output = exec_pb2.ExecOutput | bytes
"""An output; or the bytes of stdout."""
Stdin = bytes | memoryview | None
"""Bytes; or none for their end."""


class CallerMessage(Protocol):
    """A message of a caller; the first has a command instead."""

    @property
    def input(self) -> exec_pb2.ExecInput: ...


class CallerStream(Protocol):
    """One stream of a caller: through the master, or through the relay beside it."""

    @property
    def messages(self) -> AsyncIterator[CallerMessage | memoryview]: ...
    async def say(self, output: Output) -> None: ...
    async def taken(self, size: int, input_count: int | None) -> None: ...
    async def over(self) -> grpc.StatusCode: ...
    def end(self) -> None: ...


class Talk:
    """One ServeExec stream. A reader that is cancelled cancels all of it."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._speaking = asyncio.Lock()  # one stream has one writer at a time
        self._taken_bytes = 0
        self.messages: AsyncIterator[wire.ServeExecResponse] = _readable(call)

    async def name(self, relay_id: str) -> None:
        first = wire.ServeExecRequest(relay_id=relay_id, largest_piece_bytes=MOST_PIECE_BYTES)
        await self._say(first)

    async def say(self, output: Output) -> None:
        if isinstance(output, bytes):
            output = exec_pb2.ExecOutput(stdout=output)
        await self._say(wire.ServeExecRequest(output=output))

    async def taken(self, size: int, input_count: int | None) -> None:
        """The command has taken so much more of this stream, and so many inputs in all."""
        self._taken_bytes += size
        message = wire.ServeExecRequest(stdin_taken_bytes=self._taken_bytes)
        if input_count is not None:
            message.output.input_count = input_count
        await self._say(message)

    async def over(self) -> grpc.StatusCode:
        """Returns at the end of the master's stream or of the line, even with unread input."""
        return await self._call.code()

    def end(self) -> None:
        hang_up(self._call)

    async def _say(self, message: wire.ServeExecRequest) -> None:
        """Write one, even if the caller is cancelled meanwhile. gRPC would end the whole stream
        with a cancelled write, and the last words of the command would be lost.
        """
        writing = asyncio.ensure_future(self._write(message))
        writing.add_done_callback(heeded)
        try:
            await asyncio.shield(writing)
        finally:
            del writing  # its error would keep this frame, and with it the connection

    async def _write(self, message: wire.ServeExecRequest) -> None:
        async with self._speaking:
            await self._call.write(message)


async def _readable(call: Call) -> AsyncIterator[wire.ServeExecResponse]:
    """The messages of a stream. gRPC hands over None for bytes that are no message: ValueError."""
    async for message in call:
        if message is None:
            raise ValueError("the master said something that cannot be read")
        yield message


def heeded(writing: asyncio.Future[None]) -> None:
    """A write may fail when its caller has gone. An error that nobody takes would end the agent."""
    if not writing.cancelled():
        writing.exception()


class KeptOutputs:
    """Output that the caller of a command has not confirmed. Numbers count from 0."""

    def __init__(self, piece_bytes: int = PIECE_BYTES) -> None:
        """`piece_bytes`: of one output, at most."""
        self._piece_bytes = piece_bytes
        self._most_bytes = max(MOST_UNCONFIRMED_BYTES, 4 * piece_bytes)
        self._waiting: deque[Output] = deque()
        self._confirmed = self._bytes = 0
        self._more, self._room = asyncio.Event(), asyncio.Event()

    async def put(self, output: Output) -> None:
        """Add one; waits while much is not confirmed."""
        while self._bytes >= self._most_bytes:
            self._room.clear()
            await self._room.wait()
        self._waiting.append(output)
        self._bytes += _size(output)
        self._more.set()

    async def pump(self, descriptor: int, over: asyncio.Event, *, stderr: bool = False) -> None:
        """Add all that comes out of one descriptor, until its end; see `read_some`."""
        while data := await read_some(descriptor, over, self._piece_bytes):
            await self.put(exec_pb2.ExecOutput(stderr=data) if stderr else data)

    def confirm(self, count: int) -> None:
        """The caller has had so many in all. ValueError for more than there were."""
        if count > self._confirmed + len(self._waiting):
            raise ValueError("the caller confirms more output than there was")
        while self._confirmed < count:
            self._bytes -= _size(self._waiting.popleft())
            self._confirmed += 1
        self._room.set()

    async def number(self, number: int) -> Output:
        """The output of this number, once there is one. ValueError for a confirmed one."""
        if number < self._confirmed:
            raise ValueError("the caller asks for output that it has confirmed")
        while number - self._confirmed >= len(self._waiting):
            self._more.clear()
            await self._more.wait()
        return self._waiting[number - self._confirmed]


def _size(output: Output) -> int:
    return _MESSAGE_BYTES + len(output if isinstance(output, bytes) else output.stderr)


class CommandInputs:
    """Input on its way into a command. The master sends only so much beyond the taken bytes, so the
    waiting bytes are bounded. The stream is always read, so that its end is heard at once.
    """

    def __init__(self, guarded: Guarded) -> None:
        self._guarded = guarded
        # Bytes, or none for its end. Another input has an empty place here, and is counted too.
        self._waiting: asyncio.Queue[tuple[Stdin, CallerStream]] = asyncio.Queue()
        self._untaken_bytes = 0
        self.come = 0
        """So many in all, from all streams."""
        self.done = 0
        """So many of them are done with."""
        self.present: CallerStream | None = None
        """The stream on which the caller is now."""
        self._told: CallerStream | None = None
        self._untold: list[int] = []
        """The sizes of taken inputs of this stream that it was not told of."""
        self._largest = PIECE_BYTES

    def put(self, heard: exec_pb2.ExecInput, talk: CallerStream) -> None:
        """The next input. ValueError for a master that does not wait."""
        match heard.WhichOneof("body"):
            case "terminal_size":
                self._guarded.resize(*_bounded(heard.terminal_size))
            case "signal":
                self._guarded.signal(_number(heard.signal))
            case _:
                pass
        self.put_stdin(None if heard.stdin_end else heard.stdin, talk)

    def put_stdin(self, stdin: Stdin, talk: CallerStream) -> None:
        """The next bytes; none: their end. ValueError as for `put`."""
        self._untaken_bytes += len(stdin or b"")
        if self._untaken_bytes > MOST_UNTAKEN_BYTES or self._waiting.qsize() >= MOST_UNTAKEN:
            raise ValueError("the master sends more input than was asked for")
        self.come += 1
        self._waiting.put_nowait((stdin, talk))

    async def feed(self, *, counted: bool) -> None:
        """Hand stdin over as the command takes it. Bytes without a reader count as taken."""
        reads = True
        while True:
            stdin, talk = await self._waiting.get()
            if stdin:
                reads = reads and await write_all(self._guarded.stdin, stdin)
                self._untaken_bytes -= len(stdin)
            elif stdin is None:
                await self._end()
            self.done += 1
            self._untold.append(len(stdin or b""))
            if counted and self.present not in (None, talk):
                assert self.present is not None
                await _tell(self.present, 0, self.done)  # of an input that came on a lost stream
            elif self._is_to_be_told(talk, counted=counted):
                size = sum(self._untold)
                self._untold.clear()
                await _tell(talk, size, self.done if counted else None)

    def _is_to_be_told(self, talk: CallerStream, *, counted: bool) -> bool:
        """A word for each input would cost more than a small input. A caller that counts keeps what
        it was not told of, and waits at three of its largest pieces.
        """
        last = self._untold[-1]
        if talk is not self._told:
            self._told, self._untold = talk, [last]
        if not counted:
            return last > 0
        self._largest = max(self._largest, last)
        return sum(self._untold) + _MESSAGE_BYTES * len(self._untold) >= self._largest

    async def _end(self) -> None:
        if self._guarded.has_terminal:
            await write_all(self._guarded.stdin, END_OF_INPUT)
        else:
            self._guarded.close_stdin()


async def _tell(talk: CallerStream, size: int, count: int | None) -> None:
    # That stream may be over: a caller who comes back is told the count.
    with suppress(*STREAM_LOST):
        await talk.taken(size, count)


def _number(signal: str) -> int:
    try:
        return Signals[f"SIG{signal}"].value
    except KeyError:
        raise ValueError(f"{signal[:40]!r} is not a signal") from None


def size_of(spec: exec_pb2.ExecSpec) -> tuple[int, int]:
    return _bounded(spec.terminal_size) if spec.HasField("terminal_size") else SIZE


def _bounded(size: exec_pb2.TerminalSize) -> tuple[int, int]:
    return (min(max(size.column_count, 1), 65_535), min(max(size.row_count, 1), 65_535))
