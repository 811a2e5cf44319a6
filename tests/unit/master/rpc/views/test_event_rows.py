"""Answers of watches: one encoding for all watchers, and as fresh as one that is made anew."""

from __future__ import annotations

import pytest

from dlq.v1 import job_service_pb2 as wire
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job, JobState
from dlq_master.model.resources import Request
from dlq_master.rpc.views.convert import event_message
from dlq_master.rpc.views.event_rows import MOST_KEPT, OLDEST_S, EventRows
from dlq_master.rpc.views.job_rows import JobRows
from dlq_master.rpc.views.job_view import job_message
from support.fake_clock import FakeClock
from support.fake_control import FakeControl


@pytest.fixture
def control() -> FakeControl:
    control = FakeControl(FakeClock())
    control.add_node("gpu01")
    job = Job(JobId(1), "alice", "train", Request(gpus=1), control.clock.now_s())
    control.published.all_jobs[job.job_id] = job._replace(state=JobState.QUEUED)
    return control


def test_a_thousand_watchers_cost_one_encoding(control: FakeControl) -> None:
    event = control.note("job_noted", job_id=JobId(1))
    rows, read, now_s = EventRows(JobRows()), control.published, control.clock.now_s()
    told = {rows.answer(event, read, now_s, names=True) for _ in range(1000)}
    assert rows.encoded == 1
    assert [wire.WatchEventsResponse.FromString(one) for one in told] == [
        wire.WatchEventsResponse(
            event=event_message(event),
            cursor=event.seq,
            job=job_message(read.all_jobs[JobId(1)], read, now_s),
        )
    ]
    rows.answer(event, read, now_s, names=False)
    assert rows.encoded == 2, "who may not know names has an answer of its own"


def test_a_job_that_has_changed_or_run_on_is_told_anew(control: FakeControl) -> None:
    event = control.note("job_noted", job_id=JobId(1))
    rows, read = EventRows(JobRows()), control.published
    control.place(JobId(1), "gpu01")
    assert isinstance(control.clock, FakeClock)

    def run_s() -> int:
        content = rows.answer(event, read, control.clock.now_s(), names=True)
        return wire.WatchEventsResponse.FromString(content).job.run_duration.seconds

    assert run_s() == 0
    control.clock.advance(2 * int(OLDEST_S) + 1)
    assert run_s() == 3
    read.all_jobs[JobId(1)] = read.all_jobs[JobId(1)]._replace(total_executed_s=10.0)
    assert run_s() == 13


def test_the_end_of_a_job_is_told_without_an_event_that_was_filtered(control: FakeControl) -> None:
    event = control.note("job_noted", job_id=JobId(1))
    read, now_s = control.published, control.clock.now_s()
    content = EventRows(JobRows()).job_alone(event, read.all_jobs[JobId(1)], read, now_s)
    told = wire.WatchEventsResponse.FromString(content)
    assert (told.HasField("event"), told.cursor, told.job.name) == (False, event.seq, "train")


def test_a_message_of_several_events_is_put_together_once_for_all(control: FakeControl) -> None:
    events = [control.note("job_noted", job_id=JobId(1)) for _ in range(3)]
    rows, read, now_s = EventRows(JobRows()), control.published, control.clock.now_s()
    told = {id(rows.gathered(events, read, now_s)) for _ in range(1000)}
    assert (rows.encoded, len(told)) == (3, 1)
    message = wire.WatchEventsResponse.FromString(rows.gathered(events, read, now_s))
    each = [message.cursor, *[one.cursor for one in message.more]]
    assert each == [event.seq for event in events]
    assert [one.job.job_id for one in message.more] == ["1", "1"]
    assert message.people_version == read.people_version
    control.add_user("new", "admin")
    anew = wire.WatchEventsResponse.FromString(rows.gathered(events, read, now_s))
    assert anew.people_version == read.people_version != message.people_version
    rows.gathered(events, read, now_s + 2 * OLDEST_S)
    assert rows.encoded == 6, "the clock of its job is not older than a second"


def test_answers_of_the_oldest_events_make_room(control: FakeControl) -> None:
    rows, read, now_s = EventRows(JobRows()), control.published, control.clock.now_s()
    for _ in range(MOST_KEPT + 1):
        rows.answer(control.note("node_noted"), read, now_s, names=True)
    assert len(rows._told) == MOST_KEPT
    rows.answer(read.journal[-1], read, now_s, names=True)
    assert rows.encoded == MOST_KEPT + 1, "the newest are kept"
