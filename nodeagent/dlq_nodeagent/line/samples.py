"""Profiles of this agent for operators, by a stream and a connection of its own, as for output.

Sampling ends with its stream: with the caller, the master, or the line. An agent that stops or is
killed loses the samples.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

import grpc

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1.agent_service_pb2_grpc import AgentServiceStub
from dlq_common.clock import Clock
from dlq_common.daemon.logs import get_logger
from dlq_common.daemon.pinned import PackageChanged
from dlq_common.errors import DlqError, TryAgain
from dlq_nodeagent.line.channel import Channels, hang_up
from dlq_nodeagent.model.messages import OpenSamples

if TYPE_CHECKING:
    from dlq_common.daemon.profiles import OwnProfiles

_DIAL_S = 10.0
_SIGN_S = 1.0
_PIECE_BYTES = 64 * 1024
_MOST_AT_ONCE = 4  # one that samples, and refusals of others

log = get_logger("nodeagent.samples")


class SampleSender:
    """Answers OpenSamples commands. It never delays the session."""

    def __init__(self, channels: Channels, clock: Clock) -> None:
        self._channels = channels
        self._clock = clock
        self._made: OwnProfiles | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, order: OpenSamples) -> None:
        """Start one profile, or its refusal, and return at once."""
        if len(self._tasks) >= _MOST_AT_ONCE:
            log.warning("samples_refused", user=order.user)
            return
        task = asyncio.get_running_loop().create_task(self._push(order), name="samples")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End all profiles."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _push(self, order: OpenSamples) -> None:
        try:
            async with self._channels.open() as channel:
                await asyncio.wait_for(channel.channel_ready(), _DIAL_S)
                call = AgentServiceStub(channel).PushLog()
                try:
                    await self._sample(order, call)
                    await call.done_writing()
                    await call
                finally:
                    hang_up(call)
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError, TimeoutError, DlqError) as error:
            # Mostly a caller that has gone.
            log.debug("samples_ended", relay_id=order.relay_id, error=str(error))
        except Exception as error:  # one profile's fault must not end the agent
            log.error("samples_failed", relay_id=order.relay_id, exc_info=error)

    async def _sample(
        self,
        order: OpenSamples,
        call: grpc.aio.StreamUnaryCall[wire.PushLogRequest, wire.PushLogResponse],
    ) -> None:
        try:
            from dlq_common.daemon.profile_message import profile_bytes

            begun = self._profiles().begun(order.user, order.sample_s, profile_bytes)
            with begun as sampling:
                await call.write(wire.PushLogRequest(relay_id=order.relay_id))
                while not await sampling.over(_SIGN_S):
                    await call.write(wire.PushLogRequest(relay_id=order.relay_id))
                found = await sampling.answer()
        except (TryAgain, PackageChanged) as error:
            told = wire.PushLogRequest(relay_id=order.relay_id, end=True, error=str(error))
            await call.write(told)
            return
        for piece in _pieces(order.relay_id, found):
            await call.write(piece)

    def _profiles(self) -> OwnProfiles:
        """Made on demand: an agent without profiles does not load these modules."""
        if self._made is None:
            from dlq_common.daemon.profiles import OwnProfiles

            self._made = OwnProfiles(self._clock)
        return self._made


def _pieces(relay_id: str, found: bytes) -> Iterator[wire.PushLogRequest]:
    for offset in range(0, len(found), _PIECE_BYTES):
        data = found[offset : offset + _PIECE_BYTES]
        yield wire.PushLogRequest(relay_id=relay_id, offset=offset, data=data)
    yield wire.PushLogRequest(relay_id=relay_id, offset=len(found), end=True)
