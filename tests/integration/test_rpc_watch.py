"""WatchEvents over the wire: nothing missed, nothing twice, nothing that is not the watcher's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc import aio
from grpc_status import rpc_status

from dlq.v1 import event_pb2, queue_service_pb2
from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_service_pb2_grpc import JobServiceStub
from dlq.v1.queue_service_pb2_grpc import QueueServiceStub
from dlq_common.identity.pki import Role
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import JobState
from dlq_master.rpc.calls.limits import STREAMS_OF_A_PERSON
from support.rpc_house import DEADLINE_S, RpcHouse, refusal, rpc_house

pytestmark = pytest.mark.integration


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[RpcHouse]:
    async with rpc_house(tmp_path) as house:
        for name in ("alice", "bob"):
            stub = JobServiceStub(house.channel_as(name, Role.USER))
            request = wire.SubmitJobRequest(request_id="r")
            request.spec.command.append("/bin/true")
            request.spec.resources.gpu_count = 1
            await stub.SubmitJob(request, timeout=DEADLINE_S)
        yield house


def watch(house: RpcHouse, name: str = "alice", role: Role = Role.USER, **request: Any) -> Any:
    stub = JobServiceStub(house.channel_as(name, role))
    return stub.WatchEvents(wire.WatchEventsRequest(**request), timeout=DEADLINE_S)


async def heard(call: Any, count: int) -> list[wire.WatchEventsResponse]:
    async with asyncio.timeout(DEADLINE_S):
        return [await call.read() for _ in range(count)]


async def test_the_past_comes_first_and_then_what_happens(house: RpcHouse) -> None:
    call = watch(house, "olga", Role.OPERATOR)
    past = await heard(call, 2)
    house.control.note("node_lost", node_id="gpu01")
    live = await heard(call, 1)
    assert [each.cursor for each in past + live] == [1, 2, 3]
    assert live[0].event.kind == "node_lost"
    assert not live[0].HasField("job")


async def test_a_watch_resumed_from_its_cursor_misses_and_repeats_nothing(
    house: RpcHouse,
) -> None:
    for _ in range(50):
        house.control.note("tick", job_id=1)
    first = watch(house)
    seen = [each.cursor for each in await heard(first, 20)]
    first.cancel()
    again = watch(house, cursor=seen[-1])
    seen += [each.cursor for each in await heard(again, 31)]
    assert seen == [1, *range(3, 53)]


@pytest.mark.parametrize(("name", "role"), [("alice", Role.USER), ("olga", Role.OPERATOR)])
async def test_gathered_events_are_those_that_come_one_by_one(
    house: RpcHouse, name: str, role: Role
) -> None:
    for number in range(50):
        house.control.note("tick", job_id=1 + number % 2)
    seen = 27 if role is Role.USER else 53  # the last one ends the watch; a submission is an event
    house.control.note("last", job_id=1)
    one_by_one = await heard(watch(house, name, role), seen)
    call, gathered = watch(house, name, role, gathered=True), list[wire.WatchEventsResponse]()
    async with asyncio.timeout(DEADLINE_S):
        while not gathered or gathered[-1].event.kind != "last":
            message = await call.read()
            gathered += [message, *message.more]
            del message.more[:]
    assert len(gathered) == seen
    assert [(it.event, it.cursor, it.job.job_id) for it in gathered] == [
        (it.event, it.cursor, it.job.job_id) for it in one_by_one
    ]


@pytest.mark.parametrize(
    ("role", "gathered", "told"),
    [(Role.OPERATOR, True, True), (Role.OPERATOR, False, False), (Role.USER, True, False)],
)
async def test_a_whole_watch_says_as_of_which_people_it_is(
    house: RpcHouse, role: Role, gathered: bool, told: bool
) -> None:
    name = "alice" if role is Role.USER else "olga"
    (message,) = await heard(watch(house, name, role, gathered=gathered), 1)
    assert bool(message.people_version) is told
    stub = QueueServiceStub(house.channel_as(name, role))
    cluster = await stub.GetCluster(queue_service_pb2.GetClusterRequest(), timeout=DEADLINE_S)
    assert bool(cluster.people_version) is (role is Role.OPERATOR)
    if told:
        assert message.people_version == cluster.people_version


async def test_an_ended_right_that_no_row_tells_changes_the_number_of_the_people(
    house: RpcHouse,
) -> None:
    """As where the uid of a user is another person's by now, or a former CA counts no more."""
    stub = QueueServiceStub(house.channel_as("olga", Role.OPERATOR))
    request = queue_service_pb2.GetClusterRequest()
    before = await stub.GetCluster(request, timeout=DEADLINE_S)
    house.server.open_calls.look()
    after = await stub.GetCluster(request, timeout=DEADLINE_S)
    assert before.people_version != after.people_version


async def test_from_now_on_means_from_now_on(house: RpcHouse) -> None:
    call = watch(house, cursor=-1)
    waiting = asyncio.create_task(heard(call, 1))
    stub = JobServiceStub(house.channel_as("alice", Role.USER))
    # An answered call on another line: the watch may still be opening, so events go on meanwhile.
    while not waiting.done():
        await stub.ListJobs(wire.ListJobsRequest(), timeout=DEADLINE_S)
        house.control.note("tick", job_id=1)
    assert (await waiting)[0].cursor > 2


async def test_a_watcher_hears_only_of_their_own_jobs(house: RpcHouse) -> None:
    house.control.note("secret", job_id=2)
    house.control.note("node_lost", node_id="gpu01")
    house.control.note("mine", job_id=1)
    events = await heard(watch(house), 2)
    assert [each.event.kind for each in events] == ["job_submitted", "mine"]
    assert {each.job.user for each in events} == {"alice"}


async def test_a_watch_of_named_jobs_is_of_those_alone(house: RpcHouse) -> None:
    house.control.note("first", job_id=2)
    house.control.note("second", job_id=1)
    call = watch(house, "olga", Role.OPERATOR, job_ids=["1"])
    assert [each.event.kind for each in await heard(call, 2)] == ["job_submitted", "second"]


@pytest.mark.parametrize("cursor", [-2, -(2**60)])
async def test_a_cursor_that_is_none_is_refused(house: RpcHouse, cursor: int) -> None:
    assert await refusal(watch(house, cursor=cursor)) is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_cursor_behind_the_horizon_is_told_what_to_do(house: RpcHouse) -> None:
    for _ in range(10):
        house.control.note("tick", job_id=1)
    house.control.published.journal_horizon = 8
    with pytest.raises(aio.AioRpcError) as caught:
        await heard(watch(house, cursor=7), 1)
    assert caught.value.code() is grpc.StatusCode.OUT_OF_RANGE
    info = error_details_pb2.ErrorInfo()
    assert rpc_status.from_call(caught.value).details[0].Unpack(info)
    assert (info.reason, info.metadata["oldest"]) == ("CURSOR_EXPIRED", "8")
    assert "read the state anew" in info.metadata["hint"]
    assert [each.cursor for each in await heard(watch(house, cursor=8), 2)] == [9, 10]
    assert (await heard(watch(house, cursor=0), 1))[0].cursor == 1, "what is kept"


async def test_the_story_of_a_living_job_is_told_from_behind_the_horizon(house: RpcHouse) -> None:
    for number in range(3, 503):
        house.control.note("tick", job_id=1 if number % 2 else 2)
    house.control.published.journal_horizon = 500
    call = watch(house, cursor=2, job_ids=["1"])
    own = list(range(3, 503, 2))
    assert [each.cursor for each in await heard(call, len(own))] == own
    house.control.note("tick", job_id=2)
    house.control.note("live", job_id=1)
    assert (await heard(call, 1))[0].event.kind == "live"


async def test_stories_of_several_jobs_are_told_in_one_order(house: RpcHouse) -> None:
    for number in range(3, 1003):
        house.control.note("tick", job_id=(1, 2, 9)[number % 3])
    both = [number for number in range(1, 1003) if number < 3 or number % 3 != 2]
    call = watch(house, "olga", Role.OPERATOR, job_ids=["2", "1"])
    assert [each.cursor for each in await heard(call, len(both))] == both


async def test_the_story_of_an_ended_job_may_have_been_cut(house: RpcHouse) -> None:
    house.control.note("tick", job_id=1)
    jobs = house.control.published.all_jobs
    jobs[JobId(1)] = jobs[JobId(1)]._replace(state=JobState.COMPLETED, end_time_s=1.0)
    house.control.published.journal_horizon = 3
    assert await refusal(watch(house, cursor=2, job_ids=["1"])) is grpc.StatusCode.OUT_OF_RANGE


async def test_a_list_of_events_says_how_far_back_it_is_whole_and_where_a_watch_goes_on(
    house: RpcHouse,
) -> None:
    for _ in range(10):
        house.control.note("tick", job_id=1)
    house.control.note("theirs", job_id=2)
    house.control.published.journal_horizon = 4
    stub: Any = JobServiceStub(house.channel_as("alice", Role.USER))
    first = await stub.ListEvents(wire.ListEventsRequest(page_size=3), timeout=DEADLINE_S)
    assert (first.horizon, first.cursor, first.next_page_token) == (4, 4, "4")
    rest = await stub.ListEvents(
        wire.ListEventsRequest(page_token=first.next_page_token), timeout=DEADLINE_S
    )
    assert [event.sequence for event in rest.events] == list(range(5, 13))
    assert rest.cursor == 13, "what is not for the caller was looked at, too"
    own = await stub.ListEvents(wire.ListEventsRequest(job_id="1"), timeout=DEADLINE_S)
    assert own.cursor == 13


async def test_a_filter_shows_some_events_and_nobody_more_than_before(house: RpcHouse) -> None:
    house.control.note("node_lost", node_id="gpu01")
    house.control.note("attempt_running", job_id=1, actor="node:gpu01")
    house.control.note("attempt_running", job_id=2, actor="node:gpu01")
    chosen = event_pb2.EventFilter(node_ids=["gpu01"])

    async def shown(name: str, role: Role, **more: Any) -> list[int]:
        stub: Any = JobServiceStub(house.channel_as(name, role))
        request = wire.ListEventsRequest(filter=chosen, **more)
        answer = await stub.ListEvents(request, timeout=DEADLINE_S)
        return [event.sequence for event in answer.events]

    assert await shown("olga", Role.OPERATOR) == [3, 4, 5]
    assert await shown("alice", Role.USER) == [4]
    assert await shown("olga", Role.OPERATOR, job_ids=["2", "1"]) == [4, 5]
    assert await shown("olga", Role.OPERATOR, job_id="2", page_size=1) == [5]
    stub: Any = JobServiceStub(house.channel_as("alice", Role.USER))
    both = stub.ListEvents(wire.ListEventsRequest(job_ids=["1", "2"]), timeout=DEADLINE_S)
    assert await refusal(both) is grpc.StatusCode.NOT_FOUND
    bad = event_pb2.EventFilter(kinds=["; drop"])
    assert await refusal(watch(house, filter=bad)) is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_watch_with_a_filter_is_told_of_the_end_all_the_same(house: RpcHouse) -> None:
    call = watch(house, job_ids=["1"], filter=event_pb2.EventFilter(kinds=["wanted_*"]))
    house.control.note("tick", job_id=1)
    house.control.note("wanted_one", job_id=1)
    house.control.note("wanted_two", job_id=2)
    (first,) = await heard(call, 1)
    assert (first.event.kind, first.cursor) == ("wanted_one", 4)
    jobs = house.control.published.all_jobs
    jobs[JobId(1)] = jobs[JobId(1)]._replace(state=JobState.COMPLETED, end_time_s=1.0)
    house.control.note("job_completed", job_id=1)
    (last,) = await heard(call, 1)
    assert (last.HasField("event"), last.job.job_id, last.cursor) == (False, "1", 6)


async def test_a_watcher_who_is_removed_hears_no_more(house: RpcHouse) -> None:
    call = watch(house)
    await heard(call, 1)
    del house.control.published.all_users["alice"]
    house.control.note("secret", job_id=1)
    with pytest.raises(aio.AioRpcError) as caught:
        await heard(call, 1)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_one_user_cannot_hold_streams_without_end(house: RpcHouse) -> None:
    open_calls = [watch(house) for _ in range(STREAMS_OF_A_PERSON)]
    for call in open_calls:
        await heard(call, 1)
    with pytest.raises(aio.AioRpcError) as caught:
        await heard(watch(house), 1)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    info = error_details_pb2.ErrorInfo()
    assert rpc_status.from_call(caught.value).details[0].Unpack(info)
    assert info.reason == "TRY_AGAIN", "one of them will end: it is not for ever"
    assert len(await heard(watch(house, "bob"), 1)) == 1, "others are not touched"
    for call in open_calls:
        call.cancel()


async def test_a_stream_that_ended_gives_its_place_back(house: RpcHouse) -> None:
    for _ in range(STREAMS_OF_A_PERSON + 5):
        assert await refusal(watch(house, cursor=-2)) is grpc.StatusCode.INVALID_ARGUMENT
    assert len(await heard(watch(house), 1)) == 1
