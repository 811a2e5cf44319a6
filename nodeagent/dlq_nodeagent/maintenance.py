"""Words of this node's operator to the master: `dlq-nodeagent maintenance` and `leave`.

Both call the master themselves, with the node's certificate. Without a line they change nothing and
say so. Maintenance asks that this node's jobs may hold out without the agent. The running agent
hears of it from the master and tells the shims; so does the next agent after a restart. The master
has the order on disk. Leaving says that the provider takes a rented machine back, so that its jobs
save in time. They wait again once the provider no longer lists the machine.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import grpc

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1.agent_service_pb2_grpc import AgentServiceStub
from dlq_client.line.errors import from_rpc_error
from dlq_common.clock import Clock
from dlq_common.errors import DlqError, Unavailable
from dlq_common.ids import Ids
from dlq_common.text.wire import from_duration, to_duration
from dlq_nodeagent.line.channel import Channels

CALL_S = 10.0
PATIENCE_S = 30.0
"""Two heartbeats bring the word and its confirmation; this is for slow lines."""
_ASK_AGAIN_S = 0.5


class NotInForce(DlqError):
    """The master has allowed it, but some ranks may not know it yet."""

    reason = "NOT_IN_FORCE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced:
    """How long from now on the agent may be away; 0: as long as every job's own hold."""

    left_s: float
    rank_count: int
    hold_s: float | None
    """Shortest silence that a rank here survives from now on; None when no rank is here."""


async def announce(channels: Channels, clock: Clock, ids: Ids, maintenance_s: float) -> Announced:
    """Ask, and wait until every job of this node has been told; 0 s ends the maintenance.

    Unavailable: the master cannot be reached. NotInForce: the jobs were not told within PATIENCE_S.
    Also raises the master's refusals. May be repeated.
    """
    request = wire.AnnounceMaintenanceRequest(
        request_id=ids.request_id(), maintenance_duration=to_duration(maintenance_s)
    )
    until_s = clock.boottime_s() + PATIENCE_S

    async def ask(channel: grpc.aio.Channel) -> Announced:
        stub = AgentServiceStub(channel)
        while True:
            answer = await stub.AnnounceMaintenance(request, timeout=CALL_S)
            if answer.in_force or not maintenance_s:
                return _announced(answer)
            if clock.boottime_s() >= until_s:
                raise NotInForce(
                    f"the jobs of this node have not been told within {PATIENCE_S:.0f} s: do not "
                    "stop the agent for longer than their hold",
                    hint="is the agent running (and not older than this command)? ask again, or "
                    "take"
                    " it back: dlq-nodeagent maintenance --end",
                )
            await asyncio.sleep(_ASK_AGAIN_S)

    try:
        return await channels.on_leader(ask)
    except grpc.aio.AioRpcError as error:
        failure = from_rpc_error(error, channels.address)
        if isinstance(failure, Unavailable):
            raise Unavailable(
                f"{failure.what}; the longer hold is not confirmed: jobs keep their ordinary hold",
                hint="keep the agent running until the master answers, then ask again",
            ) from None
        raise failure from None


def _announced(answer: wire.AnnounceMaintenanceResponse) -> Announced:
    return Announced(
        left_s=from_duration(answer.left_duration),
        rank_count=answer.rank_count,
        hold_s=from_duration(answer.hold_duration) if answer.HasField("hold_duration") else None,
    )


async def announce_leave(channels: Channels, ids: Ids, leave_s: float) -> int:
    """The number of ranks here. Raises Unavailable, or the master's refusal."""
    request = wire.AnnounceLeaveRequest(
        request_id=ids.request_id(), leave_duration=to_duration(leave_s)
    )

    async def ask(channel: grpc.aio.Channel) -> wire.AnnounceLeaveResponse:
        return await AgentServiceStub(channel).AnnounceLeave(request, timeout=CALL_S)

    try:
        answer = await channels.on_leader(ask)
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error, channels.address) from None
    return answer.rank_count
