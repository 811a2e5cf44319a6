"""Jobs that have left the master's memory, over the wire: listed, shown and watched like any
other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq_common.identity.pki import Role
from dlq_common.text.wire import to_timestamp
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.resources import Request
from support.fake_control import FakeRead
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house

pytestmark = pytest.mark.integration


def a_job(number: int, **changes: Any) -> Job:
    job = Job(
        job_id=JobId(number),
        user="alice",
        name=f"job {number}",
        request=Request(gpus=2),
        submit_time_s=number * 1.0,
        state=JobState.QUEUED,
    )
    return job._replace(**changes)


def ended(number: int, end_s: float, **changes: Any) -> Job:
    return a_job(number, state=JobState.COMPLETED, end_time_s=end_s, **changes)


def fill(read: FakeRead, now_s: float) -> None:
    """600 jobs of alice: of each ten one lives, two ended lately, the others have left memory."""
    for number in range(1, 601):
        job_id, kind = JobId(number), number % 10
        if kind == 0:
            read.all_jobs[job_id] = a_job(number)
        elif kind in (1, 2):
            read.all_jobs[job_id] = ended(number, now_s - number)
        else:
            read.past[job_id] = ended(number, now_s - 10_000.0 - number)
    read.past[JobId(4)] = read.past[JobId(4)]._replace(user="bob", state=JobState.FAILED)
    read.past[JobId(5)] = read.past[JobId(5)]._replace(name="one of its kind", queue="urgent")
    # Just left memory, while the list was being made: it is on the disk as well.
    read.complete_from_s = now_s - 10_000.0


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        fill(house.control.published, house.clock.now_s())
        yield house


async def listed(house: RpcHouse, who: str, role: Role, /, **request: Any) -> list[int]:
    """The ids of all pages."""
    stub: Any = JobServiceStub(house.channel_as(who, role))
    token, found = "", []
    while True:
        answer = await stub.ListJobs(
            wire.ListJobsRequest(page_token=token, **request), timeout=DEADLINE_S
        )
        found += [int(job.job_id) for job in answer.jobs]
        token = answer.next_page_token
        if not token:
            return found


async def mine(house: RpcHouse, /, **request: Any) -> list[int]:
    return await listed(house, "alice", Role.USER, **request)


def but(*missing: int) -> Iterator[int]:
    return (number for number in range(1, 601) if number not in missing)


@pytest.mark.parametrize("page_size", [0, 1, 7, 256, 599, 600])
async def test_memory_and_disk_are_one_list_in_the_order_of_ids(
    house: RpcHouse, page_size: int
) -> None:
    if page_size == 1:
        assert await mine(house, page_size=1, name="one of its kind") == [5]
    else:
        assert await mine(house, page_size=page_size) == list(but(4))


async def test_filters_reach_what_has_left_memory(house: RpcHouse) -> None:
    assert await mine(house, queue="urgent") == [5]
    assert await mine(house, job_ids=["3", "10", "4", "9999"]) == [3, 10]
    assert await listed(house, "olga", Role.OPERATOR, user="*", states=["failed"]) == [4]
    assert await listed(house, "olga", Role.OPERATOR, user="*") == list(but())
    assert await listed(house, "bob", Role.USER) == [4]


async def test_lists_that_need_no_past_do_not_look_for_it(house: RpcHouse) -> None:
    assert await mine(house, states=["queued"]) == list(range(10, 601, 10))
    lately = await mine(house, ended_within_seconds=3600)
    assert lately == [number for number in but() if number % 10 in (0, 1, 2)]
    assert house.control.published.past_reads == 0


async def test_a_span_that_reaches_beyond_memory_is_read_from_the_disk(house: RpcHouse) -> None:
    found = await mine(house, ended_within_seconds=10_110, states=["completed"])
    lately = [number for number in but() if number % 10 in (1, 2)]
    assert found == sorted([*lately, *(n for n in but(4) if n < 110 and n % 10 > 2)])


async def test_old_jobs_are_shown_and_hidden_like_others(house: RpcHouse) -> None:
    alice: Any = JobServiceStub(house.channel_as("alice", Role.USER))
    answer = await alice.GetJob(wire.GetJobRequest(job_id="5"), timeout=DEADLINE_S)
    assert answer.job.name == "one of its kind"
    house.control.note("job_completed", job_id=4)
    house.control.note("job_completed", job_id=5)
    events = await alice.ListEvents(wire.ListEventsRequest(), timeout=DEADLINE_S)
    assert [event.job_id for event in events.events] == ["5"]
    watch = alice.WatchEvents(wire.WatchEventsRequest(cursor=0), timeout=DEADLINE_S)
    assert (await watch.read()).job.name == "one of its kind"


def at(now_s: float, seconds_ago: float) -> Timestamp:
    return to_timestamp(now_s - seconds_ago)


async def test_a_span_of_ends_holds_only_jobs_that_have_ended(house: RpcHouse) -> None:
    now_s = house.clock.now_s()
    whole = await mine(house, ended_from_time=Timestamp())
    assert whole == [number for number in but(4) if number % 10 != 0]
    lately = await mine(house, ended_from_time=at(now_s, 9_000.0))
    assert lately == [number for number in but() if number % 10 in (1, 2)]
    old = await mine(house, ended_before_time=at(now_s, 9_000.0), page_size=50)
    assert old == [number for number in but(4) if number % 10 > 2]
    between = await mine(
        house, ended_from_time=at(now_s, 10_100.5), ended_before_time=at(now_s, 10_050.5)
    )
    assert between == [number for number in range(51, 101) if number % 10 > 2]


async def test_a_span_of_ends_and_an_age_are_both_kept_to(house: RpcHouse) -> None:
    now_s = house.clock.now_s()
    found = await mine(
        house, ended_within_seconds=3_600, ended_from_time=at(now_s, 20_000.0), states=["completed"]
    )
    assert found == [number for number in but() if number % 10 in (1, 2)]


async def test_an_instant_that_is_none_is_refused(house: RpcHouse) -> None:
    stub: Any = JobServiceStub(house.channel_as("alice", Role.USER))
    wrong = wire.ListJobsRequest(ended_from_time=Timestamp(seconds=1, nanos=-5))
    call = stub.ListJobs(wrong, timeout=DEADLINE_S)
    assert await refusal(call) is grpc.StatusCode.INVALID_ARGUMENT


async def test_other_peoples_past_is_for_operators(house: RpcHouse) -> None:
    stub: Any = JobServiceStub(house.channel_as("bob", Role.USER))
    for user in ("alice", "*"):
        asked = wire.ListJobsRequest(user=user, ended_from_time=Timestamp())
        call = stub.ListJobs(asked, timeout=DEADLINE_S)
        assert await refusal(call) is grpc.StatusCode.PERMISSION_DENIED
