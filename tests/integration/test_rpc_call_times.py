"""How long calls take and how they end, over real mutual TLS."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.pki import Role
from dlq_master.rpc.metrics.work import call_families
from support.metric_pages import told
from support.rpc_house import DEADLINE_S, refusal, rpc_house

pytestmark = pytest.mark.integration


async def test_calls_count_by_method_and_status_and_streams_while_they_are_open(
    tmp_path: Path,
) -> None:
    async with rpc_house(tmp_path) as house:
        stub = JobServiceStub(house.channel_as("alice", Role.USER))
        await stub.ListJobs(wire.ListJobsRequest(), timeout=DEADLINE_S)
        await refusal(stub.GetJob(wire.GetJobRequest(job_id="77"), timeout=DEADLINE_S))
        stream = stub.WatchEvents(wire.WatchEventsRequest(), timeout=DEADLINE_S)
        reading = asyncio.create_task(stream.read())
        for _ in range(500):
            if house.server.times.streams:
                break
            await asyncio.sleep(0.01)
        found = told(call_families(house.server.times))
        reading.cancel()
    assert found['dlq_rpc_seconds_count{code="OK",method="JobService/ListJobs"}'] == 1
    assert found['dlq_rpc_seconds_count{code="NOT_FOUND",method="JobService/GetJob"}'] == 1
    assert sum(v for k, v in found.items() if k.startswith("dlq_stream_clients")) == 1
