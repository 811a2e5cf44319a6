"""A job's traffic profile over the wire: for who may see the job, and nobody else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.pki import Role
from dlq_master.control import stimuli as say
from dlq_master.model.ids import AttemptKey, JobId
from dlq_master.model.jobs.recording import Cause, Found, Recording, Told
from support.rpc_house import DEADLINE_S, RpcHouse, rpc_house
from support.told_traffic import MODEL, told

pytestmark = pytest.mark.integration

KEY = AttemptKey(JobId(1), 1)
UNKNOWN = Told("none", "unknown", "no-traffic")
NOTHING = Found(UNKNOWN, UNKNOWN)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


async def submitted(house: RpcHouse, profile: str = "", **labels: str) -> say.SubmitJob:
    stub: Any = JobServiceStub(house.channel_as("alice", Role.USER))
    request = wire.SubmitJobRequest(request_id="r")
    request.spec.command.append("/bin/true")
    request.spec.resources.gpu_count = 2
    request.spec.profile = profile
    request.spec.labels.update(labels)
    await stub.SubmitJob(request, timeout=DEADLINE_S)
    asked = house.control.asked[-1]
    assert isinstance(asked, say.SubmitJob)
    return asked


async def profile_seen_by(house: RpcHouse, name: str, role: Role) -> wire.GetJobResponse:
    stub: Any = JobServiceStub(house.channel_as(name, role))
    request = wire.GetJobRequest(job_id="1", with_profile=True)
    answer: wire.GetJobResponse = await stub.GetJob(request, timeout=DEADLINE_S)
    return answer


async def recorded(house: RpcHouse) -> None:
    await submitted(house)
    evidence = told(KEY, "gpu01").evidence
    house.control.published.all_evidence.append(evidence)
    house.control.published.all_recordings.append(
        Recording(KEY, 3, "alice/f", "H100", 2, (evidence.node_id,), False, Cause.FIRST, 1.0, 60.0)
    )


@pytest.mark.parametrize(("wish", "records"), [("yes", True), ("no", False), ("", None)])
async def test_a_wish_for_a_profile_and_a_family_arrive(
    house: RpcHouse, wish: str, records: bool | None
) -> None:
    asked = await submitted(house, wish, family="vgg")
    assert (asked.records, asked.family) == (records, "vgg")


@pytest.mark.parametrize(("name", "role"), [("alice", Role.USER), ("olga", Role.OPERATOR)])
async def test_who_may_see_the_job_sees_its_profile(house: RpcHouse, name: str, role: Role) -> None:
    await recorded(house)
    pending = await profile_seen_by(house, name, role)
    assert (pending.profile, pending.traffic.starts[0].told_count) == (b"", 0)
    read = house.control.published
    unknown = read.all_recordings[0]._replace(told=(0,))
    read.all_recordings = [unknown._replace(found=NOTHING)]

    answer = await profile_seen_by(house, name, role)
    assert answer.profile_attempt == "1.1"
    assert json.loads(answer.profile)["model_bytes"] == MODEL
    assert answer.traffic.starts[0].traffic.reason == "no-traffic"


async def test_nobody_else_learns_that_there_is_one(house: RpcHouse) -> None:
    await recorded(house)
    with pytest.raises(aio.AioRpcError) as caught:
        await profile_seen_by(house, "bob", Role.USER)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    stub: Any = JobServiceStub(house.channel_as("bob", Role.USER))
    with pytest.raises(aio.AioRpcError) as caught:
        await stub.ExplainJob(wire.ExplainJobRequest(job_id="1"), timeout=DEADLINE_S)
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
