"""`dlq-nodeagent leave`: a rented machine says that its provider takes it back, so that its jobs
save in time.

It speaks to the master itself, with the node's certificate. When the line is down it changes
nothing and says so. The provider then ends the jobs, and they queue again once it lists the machine
no more.
"""

from __future__ import annotations

import grpc

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1.agent_service_pb2_grpc import AgentServiceStub
from dlq_client.line.errors import from_rpc_error
from dlq_common.ids import Ids
from dlq_common.text.wire import to_duration
from dlq_nodeagent.line.channel import Channels

CALL_S = 10.0


async def announce_leave(channels: Channels, ids: Ids, leave_s: float) -> int:
    """How many ranks are here. Raises Unavailable, or the master's refusal."""
    request = wire.AnnounceLeaveRequest(
        request_id=ids.request_id(), leave_duration=to_duration(leave_s)
    )
    try:
        async with channels.open() as channel:
            answer = await AgentServiceStub(channel).AnnounceLeave(request, timeout=CALL_S)
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error, channels.address) from None
    return answer.rank_count
