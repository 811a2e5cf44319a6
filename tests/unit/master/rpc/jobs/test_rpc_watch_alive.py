"""A quiet watch gives signs of life, from which it can be resumed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from dlq.v1 import job_service_pb2 as wire
from dlq_common.clock import SteadyClock
from dlq_master.control.stimuli import Caller
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.model.resources import Request
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.jobs.watch import watch_events
from support.fake_control import FakeControl


async def test_a_keep_alive_carries_the_cursor_past_what_was_not_for_the_watcher() -> None:
    control = FakeControl(SteadyClock())
    control.add_user("alice", "user")
    for _ in range(3):
        control.note("node_lost", node_id="gpu01")
    asked: list[bool] = []
    call = SimpleNamespace(
        caller=Caller("alice", "user"),
        read=control.published,
        parts=SimpleNamespace(control=control),
        check_member=lambda: asked.append(True),
        breathe=lambda: None,  # no job is named
    )
    messages: Any = watch_events(cast(Call, call), wire.WatchEventsRequest(), keep_alive_s=0.01)
    first = await anext(messages)
    while first.cursor < 3:
        first = await anext(messages)
    assert not first.HasField("event")
    assert asked, "whether the caller is still a member is asked again and again"
    await messages.aclose()


async def test_a_watch_lets_others_in_while_its_filter_finds_nothing() -> None:
    """A job may have a story of thousands of events: everybody would wait for its end."""
    control = FakeControl(SteadyClock())
    control.add_user("alice", "user")
    job = Job(JobId(1), "alice", "train", Request(gpus=1), 0.0)
    control.published.all_jobs[job.job_id] = job
    for _ in range(50):
        control.note("job_held", job_id=job.job_id)
    looks: list[int] = []

    async def breathe(cost: int) -> None:
        looks.append(cost)

    call = SimpleNamespace(
        caller=Caller("alice", "user"),
        read=control.published,
        parts=SimpleNamespace(control=control),
        check_member=lambda: None,
        breathe=lambda: breathe,
    )
    request = wire.WatchEventsRequest(job_ids=[str(job.job_id)])
    request.filter.kinds.append("job_ended")
    messages: Any = watch_events(cast(Call, call), request, keep_alive_s=0.01)
    await anext(messages)
    await messages.aclose()
    assert sum(looks) >= 50
