"""One user with more reads on the way than are answered at a time: others do not wait, and refusals
say why.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.rpc import error_details_pb2
from grpc import aio
from grpc_status import rpc_status

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.pki import Role
from dlq_master.rpc.calls.reads import AT_ONCE, IN_LINE
from support.rpc_house import DEADLINE_S, RpcHouse, rpc_house
from support.waiting import wait_until

pytestmark = pytest.mark.integration
LISTS = 200


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        house.control.published.complete_from_s = 0.0  # lists look at the disk too
        house.control.published.past_gate = asyncio.Event()
        yield house


def a_submission() -> wire.SubmitJobRequest:
    request = wire.SubmitJobRequest(request_id="r")
    request.spec.command.append("/bin/true")
    request.spec.resources.gpu_count = 1
    return request


async def outcome(call: Any) -> tuple[str, str]:
    """How a list ended: its status, and the limit that it met."""
    try:
        await call
    except aio.AioRpcError as error:
        status = rpc_status.from_call(error)
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        assert status.details[0].Unpack(info)
        assert status.details[1].Unpack(retry)
        assert retry.retry_delay.seconds == 1
        return error.code().name, info.metadata["limit"]
    return "OK", ""


async def test_two_hundred_lists_of_one_user_keep_nobody_else_waiting(house: RpcHouse) -> None:
    read = house.control.published
    alice = [JobServiceStub(house.channel_as("alice", Role.USER)) for _ in range(4)]
    lists = [
        asyncio.ensure_future(
            outcome(alice[number % 4].ListJobs(wire.ListJobsRequest(), timeout=DEADLINE_S))
        )
        for number in range(LISTS)
    ]
    beyond = LISTS - AT_ONCE - IN_LINE
    await asyncio.to_thread(
        wait_until, lambda: sum(one.done() for one in lists) >= beyond, what="refusals"
    )
    assert read.past_reads == AT_ONCE, "of all of hers, so many are being answered"
    bob: Any = JobServiceStub(house.channel_as("bob", Role.USER))
    assert (await bob.SubmitJob(a_submission(), timeout=DEADLINE_S)).job.job_id
    answered = await bob.GetJob(wire.GetJobRequest(job_id="1"), timeout=DEADLINE_S)
    assert answered.job.job_id == "1"
    own: Any = alice[0]
    assert (await own.SubmitJob(a_submission(), timeout=DEADLINE_S)).job.job_id, (
        "changes have a line of their own"
    )
    assert read.past_reads == AT_ONCE
    assert read.past_gate is not None
    read.past_gate.set()
    ended = Counter(await asyncio.gather(*lists))
    assert ended == {("OK", ""): AT_ONCE + IN_LINE, ("RESOURCE_EXHAUSTED", "reads"): beyond}


async def test_a_caller_that_hangs_up_gives_its_place_back(house: RpcHouse) -> None:
    alice: Any = JobServiceStub(house.channel_as("alice", Role.USER))
    read = house.control.published
    lists = [alice.ListJobs(wire.ListJobsRequest(), timeout=DEADLINE_S) for _ in range(AT_ONCE)]
    await asyncio.to_thread(wait_until, lambda: read.past_reads == AT_ONCE, what="lists begun")
    for one in lists:
        one.cancel()
    assert (await alice.SubmitJob(a_submission(), timeout=DEADLINE_S)).job.job_id == "1"
    answered = await alice.GetJob(wire.GetJobRequest(job_id="1"), timeout=DEADLINE_S)
    assert answered.job.user == "alice"
