"""Commands inside ranks, for the master's OpenExec: each by a connection of its own, like output.

When the agent restarts, its guards see their leashes end and kill the commands, and the caller
hears UNAVAILABLE. When the master restarts or the line goes silent, the stream ends (within 15 s,
by keepalive) and the commands are killed. When the rank ends, its commands are killed with it.
"""

import asyncio
from collections.abc import Iterable

import grpc
import structlog

from dlq.v1 import exec_pb2
from dlq.v1.agent_service_pb2_grpc import AgentServiceStub
from dlq_common.errors import DlqError
from dlq_common.text.names import check_argument
from dlq_nodeagent.execs.guarded import Ending, Guarded
from dlq_nodeagent.execs.passing import Stdin, Talk, hear, pump, size_of
from dlq_nodeagent.line.channel import Channels
from dlq_nodeagent.model.messages import OpenExec
from dlq_nodeagent.model.port import Handle, Inside, Runtime, RuntimeFault

# Each has a guard process and a connection.
MOST_AT_ONCE = 16
_DIAL_S = 10.0
_SPEC_S = 10.0
_RANK_ENDS_S = 2.0
_LONGEST_TERM = 64
_LAST_S = 60.0
# Said in place of an ending; the master knows these words.
NOT_RUNNING, TOO_MANY = "not_running", "too_many"

log = structlog.get_logger("nodeagent.execs")


class ExecServer:
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
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, order: OpenExec, handle: Handle | None, refusal: str) -> None:
        try:
            async with self._channels.open() as channel:
                await asyncio.wait_for(channel.channel_ready(), _DIAL_S)
                talk = Talk(AgentServiceStub(channel).ServeExec())
                try:
                    await talk.name(order.relay_id)
                    if handle is None:
                        await _finish(talk, Ending(error=refusal))
                    else:
                        await self._run(handle, talk)
                finally:
                    talk.end()
        except (
            *(grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError, DlqError),
            *(StopAsyncIteration, ValueError),
        ) as error:
            # Mostly the caller has gone.
            log.debug("exec_ended", relay_id=order.relay_id, error=str(error))

    async def _run(self, handle: Handle, talk: Talk) -> None:
        spec = (await asyncio.wait_for(anext(talk.messages), _SPEC_S)).spec
        try:
            inside = self._inside(handle, spec)
            guarded = Guarded(inside, size=size_of(spec) if spec.terminal else None)
        except RuntimeFault as fault:
            log.info("exec_refused", key=str(handle.key), error=str(fault))
            await _finish(talk, Ending(error=str(fault)))
            return
        except (OSError, ValueError) as error:
            await _finish(talk, Ending(error=f"it cannot be started: {error}"))
            return
        log.info("exec_started", key=str(handle.key), program=spec.command[0])
        try:
            await talk.say(exec_pb2.ExecOutput(started=_started(handle)))
            await self._attend(handle, guarded, talk)
        finally:
            guarded.close()
            await asyncio.shield(guarded.reap())
            log.info("exec_over", key=str(handle.key))

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

    async def _attend(self, handle: Handle, guarded: Guarded, talk: Talk) -> None:
        """Bytes both ways until the command has ended; TimeoutError when no caller is left."""
        over, stdin = asyncio.Event(), Stdin(guarded)
        waiting = asyncio.create_task(guarded.wait())
        gone = {
            asyncio.create_task(hear(guarded, stdin, talk)),
            asyncio.create_task(talk.over()),
        }
        outputs = {asyncio.create_task(pump(guarded.stdout, talk, over))}
        if not guarded.has_terminal:
            outputs.add(asyncio.create_task(pump(guarded.stderr, talk, over, stderr=True)))
        said = asyncio.create_task(asyncio.wait(outputs))
        feeding = asyncio.create_task(stdin.feed(talk))
        try:
            await asyncio.wait({*gone, waiting}, return_when=asyncio.FIRST_COMPLETED)
            _check_caller(gone)
            over.set()
            # A slow reader is waited for, as long as the line lives.
            await asyncio.wait({*gone, said}, return_when=asyncio.FIRST_COMPLETED)
            _check_caller(gone)
            await _finish(talk, await self._rank_ended(handle, waiting.result()))
        finally:
            tasks = (*gone, *outputs, said, feeding, waiting)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _rank_ended(self, handle: Handle, ending: Ending) -> Ending:
        """A command that SIGKILL ended: was that the end of its rank? It ends with its group, and
        the rank is over only a moment later."""
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


async def _finish(talk: Talk, ending: Ending) -> None:
    """The last word; the master ends the stream when it has passed it on."""
    await talk.say(exec_pb2.ExecOutput(ended=ended_message(ending)))
    await asyncio.wait_for(talk.over(), _LAST_S)


def ended_message(ending: Ending) -> exec_pb2.ExecEnded:
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


def _check_caller(gone: Iterable["asyncio.Task[None]"]) -> None:
    for task in gone:
        if task.done():
            task.result()
            raise TimeoutError("the caller has gone")
