"""Commands inside ranks, for the master's OpenExec: each by a connection of its own, like output.

What happens when: the agent restarts - its guards see their leashes end and kill the commands, and the
caller hears UNAVAILABLE; the master restarts or the line goes silent - the stream ends (a silent one
within 15 s, by keepalive) and the commands are killed; the rank ends - its commands are killed with it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

import grpc
import structlog

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1 import exec_pb2
from dlq.v1.agent_service_pb2_grpc import AgentServiceStub
from dlq_common.errors import DlqError
from dlq_common.names import check_argument
from dlq_nodeagent.channel import Channels
from dlq_nodeagent.execs.guarded import Ending, Guarded
from dlq_nodeagent.execs.streams import read_some, write_all
from dlq_nodeagent.model.messages import OpenExec
from dlq_nodeagent.runtimes.port import Handle, Inside, Runtime, RuntimeFault

# Each has a guard process and a connection.
MOST_AT_ONCE = 16
_DIAL_S = 10.0
_SPEC_S = 10.0
_RANK_ENDS_S = 2.0
_LONGEST_TERM = 64
MOST_UNTAKEN_BYTES = 1 << 20
END_OF_INPUT = b"\x04"  # Ctrl-D, to which a terminal in its usual mode listens
SIZE = (80, 24)
# Said in place of an ending; the master knows these words.
NOT_RUNNING, TOO_MANY = "not_running", "too_many"

log = structlog.get_logger("nodeagent.execs")

Call = grpc.aio.StreamStreamCall[wire.ServeExecRequest, wire.ServeExecResponse]


class Execs:
    """Answers OpenExec commands. Never waits for anything the session waits for."""

    def __init__(self, channels: Channels, runtime: Runtime) -> None:
        self._channels = channels
        self._runtime = runtime
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, order: OpenExec, handle: Handle | None) -> None:
        """Start one command; returns at once. See `run_inside` of the port in errands.py."""
        refusal = TOO_MANY if len(self._tasks) >= MOST_AT_ONCE else ""
        if handle is None:
            refusal = refusal or NOT_RUNNING
        task = asyncio.get_running_loop().create_task(
            self._serve(order, None if refusal else handle, refusal), name="exec"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End all commands."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, order: OpenExec, handle: Handle | None, refusal: str) -> None:
        try:
            async with self._channels.open() as channel:
                await asyncio.wait_for(channel.channel_ready(), _DIAL_S)
                call: Call = AgentServiceStub(channel).ServeExec()
                try:
                    await call.write(wire.ServeExecRequest(relay_id=order.relay_id))
                    ending = Ending(error=refusal)
                    if handle is not None:
                        ending = await self._run(handle, call)
                    await call.write(_said(exec_pb2.ExecOutput(ended=ended_message(ending))))
                    await call.done_writing()
                    # The master closes the stream when it has passed the last word on.
                    await asyncio.wait_for(call.code(), _DIAL_S)
                finally:
                    call.cancel()
        except (
            *(grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError, DlqError),
            *(StopAsyncIteration, ValueError),
        ) as error:
            # Mostly a caller who has gone.
            log.debug("exec_ended", relay_id=order.relay_id, error=str(error))

    async def _run(self, handle: Handle, call: Call) -> Ending:
        messages = aiter(call)
        first = await asyncio.wait_for(anext(messages), _SPEC_S)
        spec = first.spec
        try:
            inside = self._inside(handle, spec)
            guarded = Guarded(inside, size=size_of(spec) if spec.terminal else None)
        except RuntimeFault as fault:
            log.info("exec_refused", key=str(handle.key), error=str(fault))
            return Ending(error=str(fault))
        except (OSError, ValueError) as error:
            return Ending(error=f"it cannot be started: {error}")
        log.info("exec_started", key=str(handle.key), program=spec.command[0])
        try:
            await call.write(_said(exec_pb2.ExecOutput(started=_started(handle))))
            ending = await self._attend(guarded, call, messages)
        finally:
            guarded.close()
            await asyncio.shield(guarded.reap())
        log.info("exec_over", key=str(handle.key), code=ending.exit_code, signal=ending.signal)
        return await self._rank_ended(handle, ending)

    def _inside(self, handle: Handle, spec: exec_pb2.ExecSpec) -> Inside:
        if not spec.command:
            raise ValueError("the command is empty")
        for word in spec.command:
            check_argument(word, "the command")
        term = spec.terminal_type
        if len(term) > _LONGEST_TERM or not all(it.isalnum() or it in "._+-" for it in term):
            raise ValueError("no kind of terminal has such a name")
        return self._runtime.inside(
            handle,
            spec.command,
            terminal=spec.terminal,
            variable=f"TERM={term}" if spec.terminal and term else "",
        )

    async def _attend(
        self, guarded: Guarded, call: Call, messages: AsyncIterator[wire.ServeExecResponse]
    ) -> Ending:
        """Bytes both ways until the command has ended. TimeoutError when nobody wants it any more."""
        over, speaking = asyncio.Event(), asyncio.Lock()  # one stream has one writer at a time

        async def say(message: wire.ServeExecRequest) -> None:
            async with speaking:
                await call.write(message)

        tasks: list[asyncio.Task[object]] = []

        def begin(work: Coroutine[None, None, object]) -> asyncio.Task[object]:
            tasks.append(asyncio.create_task(work))
            return tasks[-1]

        waiting = asyncio.create_task(guarded.wait())
        stdin = Stdin(guarded)
        gone = {begin(_hear(guarded, stdin, messages)), begin(_over(call))}
        begin(stdin.feed(say))
        outputs = {begin(_pump(guarded.stdout, over, say, _stdout))}
        if not guarded.has_terminal:
            errors = _pump(guarded.stderr, over, say, _stderr)
            outputs.add(begin(errors))
        try:
            await asyncio.wait({*gone, waiting}, return_when=asyncio.FIRST_COMPLETED)
            _check_caller(gone)
            ending = waiting.result()
            over.set()
            # A caller who reads slowly is waited for, as long as the line lives.
            said = asyncio.create_task(asyncio.wait(outputs))
            tasks.append(said)
            await asyncio.wait({*gone, said}, return_when=asyncio.FIRST_COMPLETED)
            _check_caller(gone)
            return ending
        finally:
            for task in (*tasks, waiting):
                task.cancel()
            await asyncio.gather(*tasks, waiting, return_exceptions=True)

    async def _rank_ended(self, handle: Handle, ending: Ending) -> Ending:
        """A command that SIGKILL ended: was that the end of its rank? It ends with its group, and the
        rank is over only a moment later."""
        killed = ending.signal == 9 or ending.exit_code == 128 + 9
        if not killed or ending.rank_ended:
            return ending
        for _ in range(int(_RANK_ENDS_S / 0.05)):
            try:
                if self._runtime.poll(handle) is not None:
                    return Ending(signal=9, rank_ended=True)
            except RuntimeFault:
                return Ending(signal=9, rank_ended=True)
            await asyncio.sleep(0.05)
        return ending


async def _pump(
    descriptor: int,
    over: asyncio.Event,
    say: Callable[[wire.ServeExecRequest], Awaitable[None]],
    message: Callable[[bytes], wire.ServeExecRequest],
) -> None:
    while data := await read_some(descriptor, over):
        await say(message(data))


async def _over(call: Call) -> None:
    """Returns when the master has ended the stream, or the line has, whatever is unread."""
    await call.code()


def _check_caller(gone: set["asyncio.Task[object]"]) -> None:
    for task in gone:
        if task.done():
            task.result()
            raise TimeoutError("the caller has gone")


class Stdin:
    """Input on its way into a command. The master sends only so much beyond what was taken, so what
    waits here is bounded, and the stream is always read: its end is heard at once."""

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

    async def feed(self, say: Callable[[wire.ServeExecRequest], Awaitable[None]]) -> None:
        """Hand it over as the command takes it, and say so. What nobody will read counts as taken."""
        taken_bytes, reads = 0, True
        while (data := await self._waiting.get()) is not None:
            reads = reads and await write_all(self._guarded.stdin, data)
            taken_bytes += len(data)
            self._untaken_bytes -= len(data)
            await say(wire.ServeExecRequest(stdin_taken_bytes=taken_bytes))
        if self._guarded.has_terminal:
            await write_all(self._guarded.stdin, END_OF_INPUT)
        else:
            self._guarded.close_stdin()


async def _hear(
    guarded: Guarded, stdin: Stdin, messages: AsyncIterator[wire.ServeExecResponse]
) -> None:
    """Returns at the end of the stream."""
    async for message in messages:
        heard = message.input
        match heard.WhichOneof("body"):
            case "stdin":
                stdin.put(heard.stdin)
            case "stdin_end":
                stdin.put(None)
            case "terminal_size":
                guarded.resize(*_bounded(heard.terminal_size))
            case _:
                pass


def size_of(spec: exec_pb2.ExecSpec) -> tuple[int, int]:
    """Columns and rows of the wanted terminal."""
    return _bounded(spec.terminal_size) if spec.HasField("terminal_size") else SIZE


def _bounded(size: exec_pb2.TerminalSize) -> tuple[int, int]:
    return (min(max(size.column_count, 1), 65_535), min(max(size.row_count, 1), 65_535))


def ended_message(ending: Ending) -> exec_pb2.ExecEnded:
    """The last word on a command."""
    error = ending.error
    if ending == Ending():
        error = "its guard was killed, and the command with it"
    return exec_pb2.ExecEnded(
        exit_code=ending.exit_code,
        signal=ending.signal,
        error=error,
        rank_ended=ending.rank_ended,
    )


def _started(handle: Handle) -> exec_pb2.ExecStarted:
    return exec_pb2.ExecStarted(attempt=handle.key.attempt, node_rank=handle.key.node_rank)


def _said(output: exec_pb2.ExecOutput) -> wire.ServeExecRequest:
    return wire.ServeExecRequest(output=output)


def _stdout(data: bytes) -> wire.ServeExecRequest:
    return _said(exec_pb2.ExecOutput(stdout=data))


def _stderr(data: bytes) -> wire.ServeExecRequest:
    return _said(exec_pb2.ExecOutput(stderr=data))
