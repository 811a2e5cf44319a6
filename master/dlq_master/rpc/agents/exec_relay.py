"""The bytes of a command inside a job, between the caller's ExecJob and the agent's ServeExec.

Nothing is stored. A few messages wait in each direction, and a slow reader holds up the writer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Final

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1.exec_pb2 import ExecInput, ExecOutput, ExecSpec
from dlq_common.errors import (
    AlreadyExists,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    Unavailable,
)
from dlq_common.identity.pki import CertifiedIdentity
from dlq_common.ids import Ids
from dlq_master.model.ids import NodeId
from dlq_master.rpc.agents.sessions import Line, Sessions

if TYPE_CHECKING:
    from dlq_master.relay.child import RelayChild, RelayedPair

ARRIVAL_TIMEOUT_S = 10.0
MESSAGES_WAITING = 8
LARGEST_PIECE_BYTES = 64 * 1024
BESIDE_BYTES = 16 * 1024  # of a message, beside its pieces
# Of input, on its way to a command that has not taken it yet. The agent never stops reading, so the
# end of its stream never waits behind input that nobody takes.
MOST_UNTAKEN_BYTES = 256 * 1024
# Where both ends say that they take larger ones. The master's CPU goes with the number of pieces.
MOST_PIECE_BYTES = 512 * 1024
CALL_ENDED = (asyncio.CancelledError, GeneratorExit)
"""The caller's call has ended from outside."""


class ExecPipe:
    """One command: two short queues between one caller and one agent."""

    def __init__(self, node_id: NodeId, spec: ExecSpec) -> None:
        self.node_id = node_id
        self.spec = spec
        self.claimed = False
        self.is_lost = False
        """The line of its caller broke: he may come back, and the agent keeps the command."""
        self.largest_output = _agreed(spec.largest_piece_bytes)
        self.largest_input = LARGEST_PIECE_BYTES
        """The size that the agent takes; its first message names it."""
        self._inputs: asyncio.Queue[ExecInput] = asyncio.Queue(MESSAGES_WAITING)
        self._outputs: asyncio.Queue[ExecOutput | None] = asyncio.Queue(MESSAGES_WAITING)
        self._closed = asyncio.Event()
        self._sent_bytes = self._taken_bytes = 0
        self._taken = asyncio.Event()

    # --- the caller's side --------------------------------------------------------------------

    async def put_input(self, message: ExecInput) -> None:
        """Send input to the command; waits for room."""
        await self._inputs.put(message)

    async def outputs(self) -> AsyncIterator[ExecOutput]:
        """The output, up to and including the end. Unavailable: the agent does not bring it."""
        timeout_s: float | None = ARRIVAL_TIMEOUT_S
        while True:
            try:
                output = await asyncio.wait_for(self._outputs.get(), timeout_s)
            except TimeoutError:
                raise Unavailable(
                    f"node {self.node_id} does not run the command; its agent may be older than "
                    "that"
                ) from None
            if output is None:
                raise Unavailable(
                    f"node {self.node_id} is gone, and with it the command",
                    hint="whether it had finished is not known",
                )
            yield output
            if output.HasField("ended"):
                return
            timeout_s = None  # it may be silent for hours; a dead line is noticed by its keepalive

    def close(self) -> None:
        """The caller has gone, or has the end. The agent is told, and kills what still runs."""
        self._closed.set()
        while not self._outputs.empty():
            self._outputs.get_nowait()

    def cut(self) -> None:
        """As `close`, for a caller that is told why."""
        self.close()
        self._outputs.put_nowait(None)

    # --- the agent's side ---------------------------------------------------------------------

    async def put_output(self, output: ExecOutput | None) -> bool:
        """Add output, or None if the agent is gone; waits for room. False: the caller is gone."""
        if not self._closed.is_set():
            await self._outputs.put(output)
        return not self._closed.is_set()

    def input_taken(self, total_bytes: int) -> None:
        """The command has taken `total_bytes` of its stdin so far."""
        self._taken_bytes = max(self._taken_bytes, min(total_bytes, self._sent_bytes))
        self._taken.set()

    async def inputs(self) -> AsyncIterator[ExecInput]:
        """The input, as fast as the command takes it, until the caller has gone."""
        closed = asyncio.create_task(self._closed.wait())
        next_: asyncio.Task[ExecInput] | None = None
        try:
            while True:
                next_ = asyncio.create_task(self._next_input())
                await asyncio.wait({closed, next_}, return_when=asyncio.FIRST_COMPLETED)
                if closed.done():
                    return
                yield next_.result()
        finally:
            closed.cancel()
            if next_ is not None:
                next_.cancel()

    async def _next_input(self) -> ExecInput:
        message = await self._inputs.get()
        size = len(message.stdin)
        most = max(MOST_UNTAKEN_BYTES, 4 * self.largest_input)
        while size and self._sent_bytes + size - self._taken_bytes > most:
            self._taken.clear()
            await self._taken.wait()
        self._sent_bytes += size
        return message


class ExecRelay:
    """The open commands. Used in the event loop's thread only."""

    def __init__(
        self, sessions: Sessions, ids: Ids, beside: Callable[[], RelayChild] | None = None
    ) -> None:
        """`beside` makes the keeper of the relay process; None: there is no relay."""
        self._sessions = sessions
        self._ids = ids
        self._pipes: dict[str, ExecPipe] = {}
        self._leaving = False
        self._beside = beside
        self._child: RelayChild | None = None

    @property
    def has_relay(self) -> bool:
        """Whether callers may ask for lines through the relay process."""
        return self._beside is not None

    @asynccontextmanager
    async def relayed(
        self,
        node_id: NodeId,
        command: wire.OpenExecCommand,
        caller: CertifiedIdentity,
        fingerprint: str,
        comes_back: Callable[[], bool],
    ) -> AsyncIterator[RelayedPair]:
        """A line through the relay between this caller and the node, for the time of this context.

        The node is told to connect. If the caller has gone, or loses its right, its command ends
        too. Unavailable: the node has no session, or there is no relay.

        `fingerprint`: the SHA-256 of the caller's certificate, hexadecimal. `comes_back`: whether a
        caller whose call was lost may take its command up again.
        """
        line = None if self._leaving else self._sessions.line(node_id)
        if line is None:
            raise Unavailable(f"node {node_id} is not connected", command="not begun")
        if self._beside is None:
            raise Unavailable("this master has no relay")
        if self._child is None:
            self._child = self._beside()
        pair = await self._child.expect(caller, node_id)
        try:
            command.relay_address, command.relay_ticket = pair.address, pair.agent_ticket
            command.relay_caller = fingerprint
            self._say(line, command)
            yield pair
        except Unavailable:
            raise  # the line is lost: the caller comes back
        except BaseException as error:
            lost = isinstance(error, CALL_ENDED) and comes_back()
            present = None if self._leaving else self._sessions.line(node_id)
            if present is not None and not lost:
                command.relay_over = True
                self._say(present, command)
            raise
        finally:
            # A master that leaves has ended no command: both ends come back to the next one.
            if not self._leaving:
                self._child.end(pair)

    def _say(self, line: Line, command: wire.OpenExecCommand) -> None:
        # Not a command of the loop's: sequence 0, answered by ServeExec and not by CommandResult.
        said = wire.Command(epoch=self._sessions.epoch, open_exec=command)
        line.say(wire.SessionResponse(command=said))

    async def close(self) -> None:
        """End the relay process. Its lines are lost; their commands go on."""
        if self._child is not None:
            await self._child.close()

    def leave(self) -> None:
        """Tell callers and agents that the line is lost, because the master ends.

        Commands with a resume key go on.
        """
        self._leaving = True
        if self._child is not None:
            self._child.leave()
        for pipe in self._pipes.values():
            pipe.cut()

    @contextmanager
    def opened(
        self, node_id: NodeId, command: wire.OpenExecCommand, spec: ExecSpec
    ) -> Iterator[ExecPipe]:
        """The pipe to a command that the node is asked to run. Unavailable: the node has no
        session.
        """
        line = None if self._leaving else self._sessions.line(node_id)
        if line is None:
            raise Unavailable(f"node {node_id} is not connected", command="not begun")
        relay_id: Final = self._ids.secret()
        pipe = ExecPipe(node_id, spec)
        self._pipes[relay_id] = pipe
        command.relay_id = relay_id
        self._say(line, command)
        try:
            yield pipe
        finally:
            del self._pipes[relay_id]
            pipe.close()

    async def serve(
        self, node_id: NodeId, requests: AsyncIterator[wire.ServeExecRequest]
    ) -> AsyncIterator[wire.ServeExecResponse]:
        """Bring a command to the node that was asked to run it. NotFound once its
        caller has gone.
        """
        pipe = await self._claim(node_id, requests)
        taking = asyncio.create_task(_take(pipe, requests))
        try:
            yield wire.ServeExecResponse(spec=pipe.spec, largest_piece_bytes=pipe.largest_output)
            async for message in pipe.inputs():
                yield wire.ServeExecResponse(input=message)
            if taking.done():
                taking.result()
        finally:
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)
        if self._leaving:
            raise Unavailable("the master is stopping")
        if pipe.is_lost:
            raise Unavailable("the line of the caller is lost")
        raise NotFound("nobody wants this command any more", kind="relay")

    async def _claim(
        self, node_id: NodeId, requests: AsyncIterator[wire.ServeExecRequest]
    ) -> ExecPipe:
        try:
            first = await asyncio.wait_for(anext(requests), ARRIVAL_TIMEOUT_S)
        except (StopAsyncIteration, TimeoutError):
            raise InvalidRequest("the relay is not named", field="relay_id") from None
        pipe = self._pipes.get(first.relay_id)
        if pipe is None:
            raise NotFound("nobody wants this command any more", kind="relay")
        if pipe.node_id != node_id:
            raise PermissionDenied("this command was asked of another node", user=node_id)
        if pipe.claimed:
            raise AlreadyExists("this command is being run already", kind="relay")
        pipe.claimed = True
        pipe.largest_input = _agreed(first.largest_piece_bytes)
        return pipe


def _agreed(wanted_bytes: int) -> int:
    """The size of pieces for an end that asks for `wanted_bytes`, never below that of
    old versions.
    """
    return min(max(wanted_bytes, LARGEST_PIECE_BYTES), MOST_PIECE_BYTES)


async def _take(pipe: ExecPipe, requests: AsyncIterator[wire.ServeExecRequest]) -> None:
    """Take the agent's messages until the command has ended or the agent has gone."""
    told = False
    try:
        async for request in requests:
            pipe.input_taken(request.stdin_taken_bytes)
            if not request.HasField("output"):
                continue
            output = request.output
            most = 2 * pipe.largest_output + BESIDE_BYTES
            if (
                max(len(output.stdout), len(output.stderr)) > pipe.largest_output
                or output.ByteSize() > most
            ):
                words = f"more than {pipe.largest_output} bytes in one message"
                raise InvalidRequest(words, field="output")
            if not await pipe.put_output(output):
                return
            told = output.HasField("ended")
            if told:
                return
    finally:
        if not told:
            await pipe.put_output(None)
