"""A refused call leaves nothing behind that only Python's collector would find."""

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from grpc import aio

from dlq.v1 import agent_service_pb2, identity_service_pb2, job_service_pb2
from dlq_common.errors import DlqError
from dlq_common.identity.pki import Role
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.calls.errors import forget_frames
from dlq_master.rpc.calls.passage import Passing
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house
from support.waiting import wait_until

pytestmark = pytest.mark.integration
TIMES = 5
OF_A_CALL = (Call, Passing, DlqError)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


@pytest.fixture
def former() -> Iterator[frozenset[int]]:
    """Ids of the objects that earlier tests of this process still hold. Python looks for no circles
    meanwhile.
    """
    gc.collect()
    gc.disable()
    yield frozenset(map(id, _of_calls()))
    gc.enable()


def _of_calls() -> list[Any]:
    return [each for each in gc.get_objects() if isinstance(each, OF_A_CALL)]


def unary(channel: aio.Channel, path: str, request: Any) -> Any:
    return channel.unary_unary(f"/dlq.v1.{path}")(request, timeout=DEADLINE_S)


def stream(channel: aio.Channel, path: str, *requests: bytes) -> Any:
    said: Any = iter(requests)
    return channel.stream_stream(f"/dlq.v1.{path}")(said, timeout=DEADLINE_S)


async def test_refused_calls_leave_no_objects_behind(
    house: RpcHouse, former: frozenset[int]
) -> None:
    alice = house.channel_as("alice", Role.USER)
    node, joining = house.channel_as("gpu01", Role.NODE), house.join_channel()
    no_job = job_service_pb2.GetJobRequest(job_id="77").SerializeToString()
    empty_spec = job_service_pb2.SubmitJobRequest(request_id="r").SerializeToString()
    join = identity_service_pb2.JoinRequest(token="none").SerializeToString()
    beat = agent_service_pb2.SessionRequest(heartbeat=agent_service_pb2.Heartbeat())
    ends = Counter[str]()
    for _ in range(TIMES):
        calls = (
            unary(alice, "JobService/GetJob", no_job),
            unary(alice, "JobService/GetJob", b"\xff"),
            unary(alice, "JobService/SubmitJob", empty_spec),
            unary(alice, "AdminService/ListUsers", b""),
            unary(joining, "JoinService/Join", join),
            stream(node, "AgentService/Session", beat.SerializeToString()),
            stream(alice, "AgentService/Session", b""),
        )
        ends.update([(await refusal(call)).name for call in calls])
    assert ends == {
        "NOT_FOUND": TIMES,
        "INVALID_ARGUMENT": 3 * TIMES,
        "PERMISSION_DENIED": 2 * TIMES,
        "UNAUTHENTICATED": TIMES,
    }
    # The client hears of the end before the master's task has left the call.
    await asyncio.to_thread(
        wait_until, lambda: {*map(id, _of_calls())} <= former, what="all of the calls is gone"
    )


def test_errors_are_parted_from_their_frames_and_from_each_other() -> None:
    def refused() -> None:
        try:
            raise KeyError("job")
        except KeyError as error:
            raise DlqError("no such job") from error

    def ended() -> None:
        try:
            refused()
        finally:
            raise aio.AbortError

    with pytest.raises(aio.AbortError) as caught:
        ended()
    end, refusal = caught.value, caught.value.__context__
    assert refusal is not None
    chain = [end, refusal, refusal.__cause__]
    forget_frames(end)
    told = [(each.__traceback__, each.__cause__, each.__context__) for each in chain if each]
    assert told == [(None, None, None)] * 3
