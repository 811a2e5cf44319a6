"""A job's output, from the agent's PushLog to the reader's ReadLogs; and profiles of agents.

Nothing is stored. A few chunks wait in a pipe, and a slow reader holds up the agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

from dlq.v1 import agent_service_pb2 as wire
from dlq_common.errors import (
    AlreadyExists,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    Unavailable,
)
from dlq_common.ids import Ids
from dlq_master.model.ids import NodeId
from dlq_master.rpc.agents.sessions import Sessions

ARRIVAL_TIMEOUT_S = 5.0
# Between two chunks of output that exists already.
CHUNK_TIMEOUT_S = 30.0
CHUNKS_WAITING = 8
LARGEST_CHUNK_BYTES = 64 * 1024
BESIDE_BYTES = 4 * 1024  # of a message, beside its data
Order = wire.OpenLogCommand | wire.OpenSamplesCommand


class Pipe:
    """One transfer from one agent to one reader."""

    def __init__(
        self, node_id: NodeId, order: Order, *, what: str, arrival_timeout_s: float
    ) -> None:
        self.node_id = node_id
        self.pushed = False
        self._arrival_timeout_s = arrival_timeout_s
        self._what = what
        follows = isinstance(order, wire.OpenLogCommand) and order.follow
        self._pause_s = None if follows else CHUNK_TIMEOUT_S
        self._chunks: asyncio.Queue[wire.PushLogRequest | None] = asyncio.Queue(CHUNKS_WAITING)
        self._closed = False

    async def put(self, chunk: wire.PushLogRequest | None) -> bool:
        """Add a chunk, or None if the agent is gone; waits for room. False: the reader is gone."""
        if not self._closed:
            await self._chunks.put(chunk)
        return not self._closed

    async def chunks(self) -> AsyncIterator[wire.PushLogRequest]:
        """The chunks, up to and including the last one. Unavailable: the agent does not
        bring it.
        """
        timeout_s: float | None = self._arrival_timeout_s
        while True:
            try:
                chunk = await asyncio.wait_for(self._chunks.get(), timeout_s)
            except TimeoutError:
                raise Unavailable(f"node {self.node_id} does not send {self._what}") from None
            if chunk is None:
                raise Unavailable(f"node {self.node_id} stopped sending {self._what}")
            yield chunk
            if chunk.end or chunk.error:
                return
            timeout_s = self._pause_s

    def close(self) -> None:
        """The reader is gone: an agent that waits for room is told."""
        self._closed = True
        while not self._chunks.empty():
            self._chunks.get_nowait()


class LogsRelay:
    """The open transfers. Used in the event loop's thread only."""

    def __init__(
        self, sessions: Sessions, ids: Ids, *, arrival_timeout_s: float = ARRIVAL_TIMEOUT_S
    ) -> None:
        self._sessions = sessions
        self._ids = ids
        self._arrival_timeout_s = arrival_timeout_s
        self._pipes: dict[str, Pipe] = {}

    @contextmanager
    def opened(self, node_id: NodeId, order: Order, *, what: str = "the output") -> Iterator[Pipe]:
        """The pipe of a transfer that the node is asked for. Unavailable: the node has
        no session.
        """
        line = self._sessions.line(node_id)
        if line is None:
            raise Unavailable(f"node {node_id} is not connected")
        relay_id: Final = self._ids.secret()
        pipe = Pipe(node_id, order, what=what, arrival_timeout_s=self._arrival_timeout_s)
        self._pipes[relay_id] = pipe
        order.relay_id = relay_id
        # Not a command of the loop's: sequence 0, answered by PushLog and not by CommandResult.
        command = wire.Command(epoch=self._sessions.epoch)
        if isinstance(order, wire.OpenLogCommand):
            command.open_log.CopyFrom(order)
        else:
            command.open_samples.CopyFrom(order)
        line.say(wire.SessionResponse(command=command))
        try:
            yield pipe
        finally:
            del self._pipes[relay_id]
            pipe.close()

    async def push(self, node_id: NodeId, requests: AsyncIterator[wire.PushLogRequest]) -> None:
        """Take a transfer from the node that was asked for it, until its end or until its reader
        has gone.
        """
        pipe: Pipe | None = None
        try:
            async for chunk in requests:
                if pipe is None:
                    pipe = self._claim(node_id, chunk.relay_id)
                beside = chunk.ByteSize() - len(chunk.data)
                if len(chunk.data) > LARGEST_CHUNK_BYTES or beside > BESIDE_BYTES:
                    raise InvalidRequest("more than 64 KiB in one message", field="data")
                if not await pipe.put(chunk) or chunk.end:
                    return
        finally:
            if pipe is not None:
                await pipe.put(None)

    def _claim(self, node_id: NodeId, relay_id: str) -> Pipe:
        pipe = self._pipes.get(relay_id)
        if pipe is None:
            raise NotFound("nobody reads this output any more", kind="relay")
        if pipe.node_id != node_id:
            raise PermissionDenied("this output was asked of another node", user=node_id)
        if pipe.pushed:
            raise AlreadyExists("this output is being sent already", kind="relay")
        pipe.pushed = True
        return pipe
