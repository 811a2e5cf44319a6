"""Commands inside ranks, for the master's OpenExec: each by a connection of its own, like output.

When the agent restarts, its guards see their leashes end and kill the commands, and the caller
hears UNAVAILABLE. When the master restarts or the line goes silent, the stream ends (within 15 s,
by keepalive). A command with a resume key is then kept for a while: its caller comes back with the
key. Other commands are killed. When the rank ends, its commands are killed with it.
"""

import asyncio
import importlib
import sys
from collections.abc import Collection, Coroutine
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from dlq.v1 import exec_pb2
from dlq.v1.agent_service_pb2_grpc import AgentServiceStub
from dlq_common.daemon.logs import get_logger
from dlq_common.errors import DlqError
from dlq_common.text.names import check_argument
from dlq_nodeagent.execs.command import LAST_S, TakenCommand, ended_message
from dlq_nodeagent.execs.guarded import PIECE_BYTES, Ending, Guarded
from dlq_nodeagent.execs.passing import (
    MOST_PIECE_BYTES,
    STREAM_LOST,
    CallerStream,
    Talk,
    size_of,
)
from dlq_nodeagent.launch.programs import program_at
from dlq_nodeagent.launch.rules import AgentJobsConfig
from dlq_nodeagent.line.channel import Channels
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import OpenExec
from dlq_nodeagent.model.mistakes import LaunchRefused
from dlq_nodeagent.model.port import Handle, Inside, Runtime, RuntimeFault
from dlq_nodeagent.shim.binary import INIT_NAME

# Each has a guard process, and most a connection. The jobs of one user leave room for others'.
MOST_AT_ONCE = 64
MOST_OF_JOB = 16
MOST_DIALLED_OF_JOB = 2
"""Each dialling holds a thread for seconds if the caller never comes to the relay."""
_DIAL_S = 10.0
_SPEC_S = 10.0
_RANK_ENDS_S = 2.0
_LONGEST_TERM = 64
# Said in place of an ending; the master knows these words.
NOT_RUNNING, TOO_MANY, GONE = "not_running", "too_many", "gone"

log = get_logger("nodeagent.execs")


class ExecServer:
    """Answers OpenExec commands. Never waits for anything the session waits for."""

    def __init__(
        self,
        channels: Channels,
        runtime: Runtime,
        state_dir: Path | None,
        kept_s: float = AgentJobsConfig().command_kept,
    ) -> None:
        """`state_dir` has the copies of programs that users can start, where they need one. A
        command waits `kept_s` for a caller whose line was lost.
        """
        self._state_dir = state_dir
        self._kept_s = kept_s
        self._channels = channels
        self._runtime = runtime
        self._tasks: set[asyncio.Task[None]] = set()
        self._commands: set[TakenCommand] = set()
        self._kept: dict[str, TakenCommand] = {}
        """By their resume keys, attended or not."""
        self._dialled: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """By job, while lines for it are dialled."""

    def run(self, order: OpenExec, handle: Handle | None) -> None:
        """Start one command, or take one up; returns at once. See `run_inside` of the port in
        errands.py.
        """
        if order.relay_over:
            self._begin(self._leave(order.relay_ticket))
            return
        # Twice as many streams: a caller who comes back is served beside the stream that was lost.
        busy = len(self._tasks) >= 2 * MOST_AT_ONCE
        if len(self._tasks) >= 4 * MOST_AT_ONCE:
            log.warning("exec_dropped", relay_id=order.relay_id[:40])
            return  # a refusal costs a connection too, and a sound master never asks for so many
        self._begin(self._serve(order, handle, busy=busy))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for command in list(self._commands):
            await self._end("", command)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="exec")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, order: OpenExec, handle: Handle | None, *, busy: bool) -> None:
        try:
            if order.relay_address:
                await self._serve_relayed(order)
            else:
                await self._serve_master(order, handle, busy=busy)
        except (*STREAM_LOST, TimeoutError, DlqError, StopAsyncIteration, ValueError) as error:
            # Mostly the caller has gone.
            log.debug("exec_ended", relay_id=order.relay_id, error=str(error))
        except Exception as error:  # one command's fault must not end the agent
            log.error("exec_failed", relay_id=order.relay_id, exc_info=error)

    async def _serve_master(self, order: OpenExec, handle: Handle | None, *, busy: bool) -> None:
        async with self._channels.open() as channel:
            await asyncio.wait_for(channel.channel_ready(), _DIAL_S)
            talk = Talk(AgentServiceStub(channel).ServeExec())
            try:
                await talk.name(order.relay_id)
                if busy:
                    await _finish(talk, Ending(error=TOO_MANY))
                else:
                    await self._run(order, handle, talk)
            finally:
                talk.end()

    async def _serve_relayed(self, order: OpenExec) -> None:
        """A command that runs already, for its caller who comes through the relay. Where the relay
        cannot be reached, the caller stays with the master.
        """
        relay = await asyncio.to_thread(_dialling)
        fresh = asyncio.Semaphore(MOST_DIALLED_OF_JOB)
        async with self._dialled.setdefault(order.key.job_id, fresh):
            line = await asyncio.to_thread(
                relay.dial,
                order.relay_address,
                self._channels.masters.address,
                order.relay_ticket,
                self._channels.identity(),
                bytes.fromhex(order.relay_caller),
            )
        talk = relay.RelayTalk(line)
        try:
            spec = await asyncio.wait_for(talk.spec(), _SPEC_S)
            if order.relay_key not in ("", spec.resume_key):
                raise ValueError("this line is another command's")  # the relay has swapped two
            command, ending = self._taken_up(order, spec)
            if command is None:
                await _finish(talk, ending)
            else:
                command.ticket = order.relay_ticket
                await self._attend(command, talk, spec)
        finally:
            await talk.close()

    async def _leave(self, ticket: str) -> None:
        """The caller of this line does not come back. A command that it has taken up elsewhere
        goes on. Commands that come through the master have no ticket.
        """
        for key, command in list(self._kept.items()):
            if ticket and command.ticket == ticket:
                await self._end(key, command)

    async def _run(self, order: OpenExec, handle: Handle | None, talk: Talk) -> None:
        first = await asyncio.wait_for(anext(talk.messages), _SPEC_S)
        spec = first.spec
        if spec.resumed:
            command, ending = self._taken_up(order, spec)
        elif handle is None:
            command, ending = None, Ending(error=NOT_RUNNING)
        else:
            command, ending = self._started(handle, spec, first.largest_piece_bytes)
        if command is None:
            await _finish(talk, ending)
        else:
            command.ticket = ""
            await self._attend(command, talk, spec)

    def _taken_up(
        self, order: OpenExec, spec: exec_pb2.ExecSpec
    ) -> tuple[TakenCommand | None, Ending]:
        """The command that was begun under the key, even if its rank has ended since."""
        command = self._kept.get(spec.resume_key)
        if command is None or command.handle.key != order.key:
            return None, Ending(error=GONE)
        return command, Ending()

    async def _attend(
        self, command: TakenCommand, talk: CallerStream, spec: exec_pb2.ExecSpec
    ) -> None:
        done = True
        try:
            done = await command.attend(talk, spec) or not command.kept
        finally:
            if done:
                await self._end(spec.resume_key, command)
            elif not command.attended and command in self._commands:
                self._begin(self._wait_for_caller(spec.resume_key, command))

    async def _wait_for_caller(self, key: str, command: TakenCommand) -> None:
        log.info("exec_kept", key=str(command.handle.key), kept_s=self._kept_s)
        await asyncio.sleep(self._kept_s)
        if not command.attended and self._kept.get(key) is command:
            await self._end(key, command)

    async def _end(self, key: str, command: TakenCommand) -> None:
        if command not in self._commands:
            return
        self._kept.pop(key, None)
        self._commands.discard(command)
        await command.end()
        log.info("exec_over", key=str(command.handle.key))

    def _started(
        self, handle: Handle, spec: exec_pb2.ExecSpec, largest_bytes: int
    ) -> tuple[TakenCommand | None, Ending]:
        """A command that runs now; None, and why not."""
        present = [command.handle.key for command in self._commands]
        if not has_room(present, handle.key) or spec.resume_key in self._kept:
            return None, Ending(error=TOO_MANY)
        try:
            inside = self._inside(handle, spec)
            pipe_bytes = MOST_PIECE_BYTES if spec.forward else 0
            size = size_of(spec) if spec.terminal else None
            guarded = Guarded(inside, size=size, pipe_bytes=pipe_bytes)
        except (RuntimeFault, LaunchRefused) as fault:
            log.info("exec_refused", key=str(handle.key), error=str(fault))
            return None, Ending(error=str(fault))
        except (OSError, ValueError) as error:
            return None, Ending(error=f"it cannot be started: {error}")
        command = TakenCommand(
            handle,
            guarded,
            kept=bool(spec.resume_key),
            piece_bytes=min(max(largest_bytes, PIECE_BYTES), MOST_PIECE_BYTES),
            judged=lambda ending: self._rank_ended(handle, ending),
        )
        self._commands.add(command)
        if command.kept:
            self._kept[spec.resume_key] = command
        log.info("exec_started", key=str(handle.key), program=spec.command[0])
        return command, Ending()

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
            self._forwarder(handle) if spec.forward else spec.command,
            terminal=spec.terminal,
            variable=f"TERM={term}" if spec.terminal and term else "",
        )

    def _forwarder(self, handle: Handle) -> tuple[str, str]:
        """The program that connects to ports of the rank (shim/init/forward.c)."""
        program = self._runtime.boxed_init(handle)
        return (program or program_at(INIT_NAME, self._state_dir), "forward")

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


def has_room(present: Collection[RankKey], key: RankKey) -> bool:
    """Whether one more command may run in this rank, beside those in these."""
    of_job = sum(one.job_id == key.job_id for one in present)
    return len(present) < MOST_AT_ONCE and of_job < MOST_OF_JOB


def _dialling() -> Any:
    """The module of the relay's lines. It needs OpenSSL, without which agents start (app.py)."""
    for name in ("ssl", "_ssl"):
        if sys.modules.get(name, sys) is None:
            del sys.modules[name]
    return importlib.import_module("dlq_nodeagent.execs.relay_talk")


async def _finish(talk: CallerStream, ending: Ending) -> None:
    """The last word; the master ends the stream when it has passed it on."""
    await talk.say(exec_pb2.ExecOutput(ended=ended_message(ending)))
    await asyncio.wait_for(talk.over(), LAST_S)
