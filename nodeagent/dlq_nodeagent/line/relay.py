"""Sends a rank's output to the master on demand, by a stream and a connection of its own."""

import asyncio
from collections.abc import AsyncIterator, Callable

import grpc

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1.agent_service_pb2_grpc import AgentServiceStub
from dlq_common.daemon.logs import get_logger
from dlq_common.errors import DlqError
from dlq_nodeagent.line.channel import Channels
from dlq_nodeagent.model.messages import OpenLog
from dlq_nodeagent.model.port import Handle, Runtime, RuntimeFault

_PIECE_BYTES = 64 * 1024
_FOLLOW_S = 0.25
# A rank that is silent for so many pauses gets an empty piece: by its fate the agent learns that a
# reader has gone. The first comes at once, since the master does not wait long for one.
_SILENT_PAUSES = 60
# The stream's end shows that a reader has gone; this only bounds the output of one agent.
_MOST_AT_ONCE = 32
_DIAL_S = 10.0

log = get_logger("nodeagent.relay")


class LogRelay:
    """Answers OpenLog commands. It never delays the session."""

    def __init__(self, channels: Channels, runtime: Runtime) -> None:
        self._channels = channels
        self._runtime = runtime
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, order: OpenLog, handle: Handle | None, never_ran: str) -> None:
        """Start one transfer and return at once. See the port in errands.py."""
        if len(self._tasks) >= 2 * _MOST_AT_ONCE:
            log.warning("relay_dropped", relay_id=order.relay_id[:40])
            return  # a refusal costs a connection too, and a sound master never asks for so many
        if len(self._tasks) >= _MOST_AT_ONCE:
            pieces = _refusal(order, "too_many_readers")
        elif handle is not None:
            pieces = log_pieces(order, handle, self._runtime, wait=_follow_pause)
        elif never_ran:
            pieces = words_pieces(order, never_ran)
        else:
            pieces = _refusal(order, "unknown_rank")
        task = asyncio.get_running_loop().create_task(self._push(order, pieces), name="relay")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _push(self, order: OpenLog, pieces: AsyncIterator[wire.PushLogRequest]) -> None:
        try:
            async with self._channels.open() as channel:
                await asyncio.wait_for(channel.channel_ready(), _DIAL_S)
                await AgentServiceStub(channel).PushLog(pieces)
        except (grpc.aio.AioRpcError, TimeoutError, DlqError) as error:
            # Mostly a reader that has seen enough.
            log.debug("relay_ended", relay_id=order.relay_id, error=str(error))
        except Exception as error:  # one reader's fault must not end the agent
            log.error("relay_failed", relay_id=order.relay_id, exc_info=error)


async def log_pieces(
    order: OpenLog,
    handle: Handle,
    runtime: Runtime,
    *,
    wait: Callable[[], "asyncio.Future[None] | asyncio.Task[None]"],
) -> AsyncIterator[wire.PushLogRequest]:
    """The output from the offset on, then one last message. A negative offset counts from the end.

    With `follow`, until the rank has ended and all is sent.
    """
    try:
        offset = _first_offset(order.offset, runtime.read_log(handle, 0, 0).end)
        silent = 0
        while True:
            over = not order.follow or runtime.poll(handle) is not None
            chunk = runtime.read_log(handle, offset, _PIECE_BYTES)
            if chunk.data:
                offset, silent = chunk.next_offset, 1
                yield wire.PushLogRequest(
                    relay_id=order.relay_id, offset=chunk.offset, data=chunk.data
                )
            elif over:
                break
            else:
                if silent % _SILENT_PAUSES == 0:
                    yield wire.PushLogRequest(relay_id=order.relay_id, offset=offset)
                silent += 1
                await wait()
    except RuntimeFault:
        yield wire.PushLogRequest(relay_id=order.relay_id, end=True, error="unknown_rank")
        return
    yield wire.PushLogRequest(relay_id=order.relay_id, offset=offset, end=True)


async def words_pieces(order: OpenLog, never_ran: str) -> AsyncIterator[wire.PushLogRequest]:
    """The text in place of missing output: why the rank never ran."""
    said = f"dlq: cannot run the job: {never_ran}\n".encode("utf-8", "replace")
    offset = min(_first_offset(order.offset, len(said)), len(said))
    yield wire.PushLogRequest(relay_id=order.relay_id, offset=offset, data=said[offset:])
    yield wire.PushLogRequest(relay_id=order.relay_id, offset=len(said), end=True)


async def _refusal(order: OpenLog, error: str) -> AsyncIterator[wire.PushLogRequest]:
    yield wire.PushLogRequest(relay_id=order.relay_id, end=True, error=error)


def _first_offset(wanted: int, end: int) -> int:
    return wanted if wanted >= 0 else max(0, end + wanted)


def _follow_pause() -> asyncio.Task[None]:
    return asyncio.get_running_loop().create_task(asyncio.sleep(_FOLLOW_S))
