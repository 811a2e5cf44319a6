"""Many jobs in one call: each is accepted or refused by itself, and a repeat is the same jobs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from dlq.v1 import job_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_client.jobs import Jobs
from dlq_common.identity.pki import Role
from dlq_master.control.stimuli import WithdrawSubmission
from dlq_master.model.ids import JobId
from dlq_master.rpc.specs import ordering
from support.harness import Daemons
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house

pytestmark = pytest.mark.integration


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        yield house


@pytest.fixture
def alice(house: RpcHouse) -> Any:
    return JobServiceStub(house.channel_as("alice", Role.USER))


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    with Daemons(tmp_path_factory.mktemp("many"), ("n1",)).up() as running:
        yield running


ARRAY = job_pb2.ArraySpec(ranges=[job_pb2.ArrayRange(first=3, last=5)])


def a_spec(name: str = "one", **more: Any) -> job_pb2.JobSpec:
    spec = job_pb2.JobSpec(name=name, command=["/bin/true"], hold=True, **more)
    spec.resources.gpu_count = 1
    return spec


async def test_they_come_in_their_order_and_a_refusal_keeps_its_place(
    house: RpcHouse, alice: Any
) -> None:
    specs = [a_spec(f"n{number}") for number in range(150)]
    specs[70].name = "a\nb"
    request = wire.SubmitJobsRequest(request_id="r", specs=specs)
    jobs = (await alice.SubmitJobs(request, timeout=DEADLINE_S)).jobs
    assert len(jobs) == 150
    assert jobs[70].job_id == ""
    assert jobs[70].refusal.reason == "INVALID_REQUEST"
    ids = [int(job.job_id) for job in jobs if job.job_id]
    assert ids == list(range(1, 150))
    assert house.control.published.all_jobs[ids[-1]].name == "n149"  # type: ignore[index]
    house.audit.close()
    lines = [json.loads(line) for line in house.audit_path.read_text().splitlines()]
    line = next(one for one in lines if one.get("method", "").endswith("/SubmitJobs"))
    assert line["object"].startswith("1,2,3,")


async def test_arrays_that_are_too_large_are_counted_and_not_listed(
    alice: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They count for no limit of submissions, and 1,000 of them held the loop for half a minute."""
    sizes: list[int] = []
    monkeypatch.setattr(ordering, "expand", sizes.append)
    array = job_pb2.ArraySpec(ranges=[job_pb2.ArrayRange(first=0, last=99_999)])
    request = wire.SubmitJobsRequest(request_id="r", specs=[a_spec(array=array)] * 300)
    jobs = (await alice.SubmitJobs(request, timeout=DEADLINE_S)).jobs
    assert {job.refusal.reason for job in jobs} == {"INVALID_REQUEST"}
    assert "one array has 10000 at most" in jobs[0].refusal.detail
    assert sizes == []
    many = job_pb2.ArraySpec(ranges=[job_pb2.ArrayRange(first=1, last=1)] * 10_001)
    request = wire.SubmitJobsRequest(request_id="s", specs=[a_spec(array=many)])
    (job,) = (await alice.SubmitJobs(request, timeout=DEADLINE_S)).jobs
    assert (job.refusal.reason, sizes) == ("INVALID_REQUEST", [])


@pytest.mark.parametrize("count", [0, 1001])
async def test_no_job_and_too_many_are_refused(alice: Any, count: int) -> None:
    request = wire.SubmitJobsRequest(request_id="r", specs=[a_spec()] * count)
    code = await refusal(alice.SubmitJobs(request, timeout=DEADLINE_S))
    assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_without_a_key_nothing_is_submitted(house: RpcHouse, alice: Any) -> None:
    request = wire.SubmitJobsRequest(specs=[a_spec()])
    code = await refusal(alice.SubmitJobs(request, timeout=DEADLINE_S))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert house.control.asked == []


@pytest.mark.parametrize(("found", "job_id"), [(None, ""), (JobId(7), "7")])
async def test_a_withdrawal_names_the_job_or_none(
    house: RpcHouse, alice: Any, found: JobId | None, job_id: str
) -> None:
    house.control.answers[WithdrawSubmission] = lambda ask: found
    asked = wire.WithdrawSubmissionRequest(request_id="r")
    assert (await alice.WithdrawSubmission(asked, timeout=DEADLINE_S)).job_id == job_id
    (ask,) = house.control.asked
    assert (ask.caller.name, ask.request_id) == ("alice", "r")
    house.audit.close()
    lines = [json.loads(line) for line in house.audit_path.read_text().splitlines()]
    methods = [line.get("method", "") for line in lines]
    assert any(method.endswith("/WithdrawSubmission") for method in methods)


async def test_another_users_jobs_are_not_submitted(house: RpcHouse) -> None:
    stub: Any = JobServiceStub(house.channel_as("gpu01", Role.NODE))
    request = wire.SubmitJobsRequest(request_id="r", specs=[a_spec()])
    code = await refusal(stub.SubmitJobs(request, timeout=DEADLINE_S))
    assert code is grpc.StatusCode.PERMISSION_DENIED


def test_a_repeat_is_the_same_jobs_also_after_a_restart_of_the_master(daemons: Daemons) -> None:
    key = "x" * 62
    specs = [a_spec(f"n{number}") for number in range(120)]
    specs[5].resources.gpu_count = 1_000_000
    with daemons.connect() as line:
        first = Jobs(line).submit_many(specs, request_id=key)
    daemons.kill("master")
    daemons.start("master")
    daemons.wait_for("master")
    with daemons.connect() as line:
        again = Jobs(line).submit_many(specs, request_id=key)
        held = Jobs(line).list()
    assert [job.job_id for job in again] == [job.job_id for job in first]
    assert first[5].refusal.reason
    assert not first[5].job_id
    assert len(held.jobs) == 119


def test_more_than_one_call_takes_are_several_calls(daemons: Daemons) -> None:
    large = {"V": "x" * 60_000}
    with daemons.connect() as line:
        submitted = Jobs(line).submit_many([a_spec("big", environment=large)] * 40)
        array = Jobs(line).submit_many([a_spec("array", array=ARRAY)])
        first = Jobs(line).list(name="array").jobs[0]
    ids = [int(job.job_id) for job in submitted]
    assert ids == sorted(set(ids))
    assert len(ids) == 40
    assert array[0].job_id == first.array_task.array_id
