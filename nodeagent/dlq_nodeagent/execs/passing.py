"""Bytes between a command and the master's stream, both ways, no faster than the slower side."""

import asyncio
from collections.abc import AsyncIterator
from signal import Signals

import grpc

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1 import exec_pb2
from dlq_nodeagent.execs.guarded import Guarded, read_some, write_all

MOST_UNTAKEN_BYTES = 1 << 20
END_OF_INPUT = b"\x04"  # Ctrl-D, to which a terminal in its usual mode listens
SIZE = (80, 24)

Call = grpc.aio.StreamStreamCall[wire.ServeExecRequest, wire.ServeExecResponse]


class Talk:
    """One ServeExec stream. Cancelling its reader or writer cancels all of it."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._speaking = asyncio.Lock()  # one stream has one writer at a time
        self.messages: AsyncIterator[wire.ServeExecResponse] = aiter(call)

    async def name(self, relay_id: str) -> None:
        await self._say(wire.ServeExecRequest(relay_id=relay_id))

    async def say(self, output: exec_pb2.ExecOutput) -> None:
        await self._say(wire.ServeExecRequest(output=output))

    async def taken(self, total_bytes: int) -> None:
        """The command has taken this much input in all."""
        await self._say(wire.ServeExecRequest(stdin_taken_bytes=total_bytes))

    async def over(self) -> None:
        """Returns at the end of the master's stream or of the line, even with unread input."""
        await self._call.code()

    def end(self) -> None:
        self._call.cancel()

    async def _say(self, message: wire.ServeExecRequest) -> None:
        async with self._speaking:
            await self._call.write(message)


async def pump(descriptor: int, talk: Talk, over: asyncio.Event, *, stderr: bool = False) -> None:
    """All that comes out of one descriptor, until its end; see `read_some`."""
    while data := await read_some(descriptor, over):
        output = exec_pb2.ExecOutput(stderr=data) if stderr else exec_pb2.ExecOutput(stdout=data)
        await talk.say(output)


class Stdin:
    """Input on its way into a command. The master sends only so much beyond the taken bytes, so the
    waiting bytes are bounded. The stream is always read, so that its end is heard at once.
    """

    def __init__(self, guarded: Guarded) -> None:
        self._guarded = guarded
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._untaken_bytes = 0

    def put(self, data: bytes | None) -> None:
        """The next bytes; None: there are no more. ValueError for a master that does not wait."""
        self._untaken_bytes += len(data or b"")
        if self._untaken_bytes > MOST_UNTAKEN_BYTES:
            raise ValueError("the master sends more input than was asked for")
        self._waiting.put_nowait(data)

    async def feed(self, talk: Talk) -> None:
        """Hand it over as the command takes it. Bytes without a reader count as taken."""
        taken_bytes, reads = 0, True
        while (data := await self._waiting.get()) is not None:
            reads = reads and await write_all(self._guarded.stdin, data)
            taken_bytes += len(data)
            self._untaken_bytes -= len(data)
            await talk.taken(taken_bytes)
        if self._guarded.has_terminal:
            await write_all(self._guarded.stdin, END_OF_INPUT)
        else:
            self._guarded.close_stdin()


async def hear(guarded: Guarded, stdin: Stdin, talk: Talk) -> None:
    """Take the master's messages; returns at the end of the stream."""
    async for message in talk.messages:
        heard = message.input
        match heard.WhichOneof("body"):
            case "stdin":
                stdin.put(heard.stdin)
            case "stdin_end":
                stdin.put(None)
            case "terminal_size":
                guarded.resize(*_bounded(heard.terminal_size))
            case "signal":
                guarded.signal(_number(heard.signal))
            case _:
                pass


def _number(signal: str) -> int:
    try:
        return Signals[f"SIG{signal}"].value
    except KeyError:
        raise ValueError(f"{signal[:40]!r} is not a signal") from None


def size_of(spec: exec_pb2.ExecSpec) -> tuple[int, int]:
    return _bounded(spec.terminal_size) if spec.HasField("terminal_size") else SIZE


def _bounded(size: exec_pb2.TerminalSize) -> tuple[int, int]:
    return (min(max(size.column_count, 1), 65_535), min(max(size.row_count, 1), 65_535))
