"""The stream to the master over grpc.aio: dial, encode, decode. Every decision is the core's."""

import asyncio
from collections.abc import Callable
from typing import Protocol

import grpc

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1.agent_service_pb2_grpc import AgentServiceStub
from dlq_client.line.errors import from_rpc_error
from dlq_client.line.masters import is_not_leader
from dlq_common.clock import clock_doubt
from dlq_common.daemon.logs import get_logger
from dlq_common.errors import DlqError
from dlq_nodeagent.line.channel import Channels, hang_up
from dlq_nodeagent.line.wire import BadMessage, decode, encode
from dlq_nodeagent.model.messages import FromAgent, FromMaster, ReportAck

_DIAL_S = 10.0
_DIAL_OF_SEVERAL_S = 3.0  # the next master is dialled then
# The most messages that wait for a slow line. Beyond it the line is given up; Hello repeats all.
_LONGEST_QUEUE = 10_000

log = get_logger("nodeagent.session")


class Listener(Protocol):
    """Receives session events: the core."""

    def opened(self) -> None: ...

    def closed(self) -> None: ...

    def received(self, message: FromMaster) -> None: ...


class GrpcTransport:
    """One stream at a time; messages of an older one are dropped."""

    listener: Listener
    """Set once, before the first `open`."""

    def __init__(
        self, channels: Channels, facts: wire.NodeFacts, *, wake: Callable[[], None]
    ) -> None:
        self._channels = channels
        self._facts = facts
        self._wake = wake
        self._task: asyncio.Task[None] | None = None
        self._queue: asyncio.Queue[FromAgent] = asyncio.Queue(_LONGEST_QUEUE)
        self.answered: Callable[[wire.HeartbeatReply], None] = lambda _reply: None
        """Hears each answer to a heartbeat."""
        self._ended: set[asyncio.Task[None]] = set()
        self._heard = False  # the master has said something in this stream

    def open(self) -> None:
        self.close()
        self._queue = asyncio.Queue(_LONGEST_QUEUE)
        self._task = asyncio.get_running_loop().create_task(self._live(), name="session")
        self._task.add_done_callback(self._finished)

    def send(self, message: FromAgent) -> None:
        if self._task is None:
            return
        try:
            self._queue.put_nowait(message)
        except asyncio.QueueFull:
            log.warning("session_too_slow")
            self._task.cancel()

    def close(self) -> None:
        if self._task is not None:
            # A stream that is given up from here was silent, or of a stale master.
            self._channels.masters.failed(self._channels.masters.address)
            self._ended.add(self._task)
            self._task.cancel()
            self._task = None

    def dial_anew(self) -> None:
        """End the stream, so that the next one shows the present certificate.

        The core is told that it was closed, and dials at once.
        """
        if self._task is not None:
            self._task.cancel()

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._ended.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Not the line's fault but ours (or the disk's): the loop's owner must know.
            asyncio.get_running_loop().call_exception_handler(
                {"message": "the session failed", "exception": error, "task": task}
            )

    async def _live(self) -> None:
        """A stream from its dialling to its end; reports `closed` unless it was closed
        from here.
        """
        me, address = asyncio.current_task(), self._channels.masters.address
        self._heard = False
        try:
            async with self._channels.open() as channel:
                await asyncio.wait_for(channel.channel_ready(), self._dial_s())
                await self._talk(channel, me)
        except (grpc.aio.AioRpcError, TimeoutError, OSError, BadMessage, DlqError) as error:
            log.warning("session_lost", error=_words(error), master=address)
            self._turn_from(address, error)
        finally:
            if self._task is me:
                self._task = None
                self.listener.closed()
                self._wake()
            del me  # a task that was cancelled keeps this frame, and with it the connection

    def _dial_s(self) -> float:
        return _DIAL_S if self._channels.count == 1 else _DIAL_OF_SEVERAL_S

    def _turn_from(self, address: str, error: BaseException) -> None:
        """Dial another master next, if this one does not lead or does not answer.

        A master that has answered before gets one more try. Thousands of agents must not go to a
        standby while it takes over.
        """
        told = from_rpc_error(error, address) if isinstance(error, grpc.aio.AioRpcError) else None
        if told is not None and is_not_leader(told):
            self._channels.masters.failed(address, told.metadata.get("leader", ""))
        elif not self._heard:
            self._channels.masters.failed(address)

    async def _talk(self, channel: grpc.aio.Channel, me: asyncio.Task[None] | None) -> None:
        call = AgentServiceStub(channel).Session()
        sender = asyncio.get_running_loop().create_task(self._send_all(call), name="session-send")
        try:
            self.listener.opened()
            self._wake()
            async for message in call:
                if self._task is not me:
                    return
                if message is None:  # so gRPC hands over bytes that are no message
                    raise BadMessage("the master said something that cannot be read")
                self._heard = True
                if message.HasField("heartbeat_reply"):
                    self.answered(message.heartbeat_reply)
                decoded = decode(message)
                if decoded is not None:
                    self.listener.received(decoded)
                    if not isinstance(decoded, ReportAck):  # nothing is said to that
                        self._wake()
        finally:
            sender.cancel()
            hang_up(call)
            del me

    async def _send_all(
        self, call: grpc.aio.StreamStreamCall[wire.SessionRequest, wire.SessionResponse]
    ) -> None:
        queue = self._queue
        try:
            while True:
                await call.write(encode(await queue.get(), self._facts))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            call.cancel()  # the reader says why


def _words(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        doubt = clock_doubt(error.details() or "")
        return f"{error.code().name}: {error.details()}{f'; {doubt}' if doubt else ''}"
    if isinstance(error, TimeoutError):
        return "the master did not answer in time"
    return str(error) or type(error).__name__
