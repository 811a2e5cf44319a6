"""Profiles of the master and of agents, for operators.

An agent takes its own profile, and sends it as it sends output of jobs. Nothing is stored: a
profile ends with its caller, this master, or the agent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from google.protobuf.duration_pb2 import Duration

from dlq.v1 import admin_service_pb2 as wire
from dlq.v1 import agent_service_pb2 as agent
from dlq_common.daemon.profile_message import profile_of
from dlq_common.errors import InvalidRequest, NotFound, TryAgain
from dlq_common.text.wire import to_duration
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.specs.intake import node_id_of, words_of
from dlq_master.rpc.specs.spec import check_span
from dlq_master.rpc.views.profile_view import profile_answer

USUAL_PROFILE_S, SHORTEST_PROFILE_S, LONGEST_PROFILE_S = 30.0, 1.0, 300.0
PROGRESS_S = 1.0
MOST_PROFILE_BYTES: Final = 4 * 1024 * 1024  # of an agent: more than all stacks that it keeps


async def profile_master(
    call: Call, request: wire.ProfileMasterRequest
) -> AsyncIterator[wire.ProfileMasterResponse | bytes]:
    """The number of samples from time to time, and the profile at the end."""
    seconds = _span(request.sample_duration, asked=request.HasField("sample_duration"))
    answer_of = profile_answer(call.parts.meter)
    with call.parts.profiles.begun(call.caller.name, seconds, answer_of) as sampling:
        while not await sampling.over(PROGRESS_S):
            call.check_member()
            yield wire.ProfileMasterResponse(sample_count=sampling.sampler.samples)
        yield await sampling.answer()


async def profile_node(
    call: Call, request: wire.ProfileNodeRequest
) -> AsyncIterator[wire.ProfileNodeResponse]:
    """Signs of life from time to time, and the profile at the end."""
    seconds = _span(request.sample_duration, asked=request.HasField("sample_duration"))
    node_id = node_id_of(request.node_id)
    if call.read.node(node_id) is None:
        raise NotFound(f"there is no node {node_id}", kind="node", id=node_id)
    order = agent.OpenSamplesCommand(sample_duration=to_duration(seconds), user=call.caller.name)
    found = bytearray()
    with call.parts.logs.opened(node_id, order, what="its profile") as pipe:
        async for piece in pipe.chunks():
            call.check_member()
            if piece.error:
                raise TryAgain(words_of(piece.error, "error"), hint="there is one at a time")
            found += piece.data
            if len(found) > MOST_PROFILE_BYTES:
                raise InvalidRequest("the profile is too large", field="data")
            if not piece.data and not piece.end:
                yield wire.ProfileNodeResponse()
    profile = await asyncio.to_thread(profile_of, bytes(found))
    yield wire.ProfileNodeResponse(profile=profile)


def _span(wanted: Duration, *, asked: bool) -> float:
    if not asked:
        return USUAL_PROFILE_S
    return check_span("sample_duration", wanted, SHORTEST_PROFILE_S, LONGEST_PROFILE_S)
