"""Which events a filter asks for, and where in the journal they are looked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.event_pb2 import EventFilter
from dlq_common.errors import InvalidRequest
from dlq_common.text.wire import to_timestamp
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli import Caller
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import JobId, NodeId
from dlq_master.model.jobs.job import Job
from dlq_master.model.resources import Request
from dlq_master.rpc.jobs import journal as rpc_journal
from dlq_master.rpc.jobs.journal import (
    CLOCK_STEP_S,
    MOST_STORIES,
    _begin_of,
    journal,
    listed_events,
    wanted_of,
)


def an_event(seq: int, kind: str = "tick", **fields: Any) -> JournalEvent:
    return JournalEvent(kind=kind, time_s=fields.pop("time_s", float(seq)), seq=seq, **fields)


def a_job(number: int) -> Job:
    return Job(JobId(number), "alice", "train", Request(gpus=1), 0.0)


class Journal:
    """Events, read as the master reads them; `reads`: how often."""

    def __init__(self, events: Sequence[JournalEvent]) -> None:
        self.all, self.reads = events, 0
        self.last_sequence = events[-1].seq if events else 0
        self.journal_horizon = 0

    def events(self, after: int, limit: int, job_id: JobId | None = None) -> list[JournalEvent]:
        self.reads += 1
        found = [e for e in self.all if e.seq > after and job_id in (None, e.job_id)]
        return found[:limit]


def read(known: Journal) -> Published:
    return cast(Published, known)


LOST = an_event(7, "node_vanished", node_id=NodeId("gpu01"), actor="master")
TOLD = an_event(8, "attempt_running", job_id=JobId(1), actor="node:gpu01")
MADE = an_event(9, "promise_made", job_id=JobId(1), actor="scheduler")


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (EventFilter(), [LOST, TOLD, MADE]),
        (EventFilter(node_ids=["gpu01"]), [LOST, TOLD]),
        (EventFilter(node_ids=["gpu0"]), []),
        (EventFilter(kinds=["promise_*"]), [MADE]),
        (EventFilter(kinds=["promise"]), []),
        (EventFilter(kinds=["promise_made", "node_*"]), [LOST, MADE]),
        (EventFilter(kinds=["*"]), [LOST, TOLD, MADE]),
        (EventFilter(since_time=to_timestamp(8.0)), [TOLD, MADE]),
        (EventFilter(since_time=to_timestamp(8.0), node_ids=["gpu01"]), [TOLD]),
    ],
)
def test_all_that_is_set_has_to_hold(asked: EventFilter, found: list[JournalEvent]) -> None:
    wanted = wanted_of(asked)
    assert [event for event in (LOST, TOLD, MADE) if wanted.has(event)] == found


@pytest.mark.parametrize("kind", ["", "Promise", "a b", "*_made", "a" * 65, "x\n"])
def test_what_is_no_kind_of_events_is_refused(kind: str) -> None:
    with pytest.raises(InvalidRequest, match="no kind of events") as refused:
        wanted_of(EventFilter(kinds=[kind]))
    assert refused.value.field == "filter.kinds"


def test_more_than_anybody_could_mean_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="more than 64"):
        wanted_of(EventFilter(kinds=["tick"] * 65))


@given(
    steps=st.lists(st.floats(-CLOCK_STEP_S / 40, 400.0), max_size=40),
    since_s=st.floats(-10.0, 4_000.0),
    after=st.integers(0, 40),
)
def test_no_event_of_the_time_asked_for_is_passed_over(
    steps: list[float], since_s: float, after: int
) -> None:
    time_s, events = 0.0, []
    for seq, step_s in enumerate(steps, 1):
        time_s += step_s  # the clock may be stepped back, by an hour in all
        events.append(an_event(seq, time_s=time_s))
    known = Journal(events)
    begin = _begin_of(read(known), after, since_s)
    assert begin >= after
    assert not [e for e in events if after < e.seq <= begin and e.time_s >= since_s]
    assert known.reads <= 7, "not one by one"


def test_a_long_journal_is_not_read_from_its_beginning() -> None:
    known = Journal([an_event(seq, time_s=seq * 60.0) for seq in range(1, 10_001)])
    begin = _begin_of(read(known), 0, 9_990 * 60.0)
    assert (begin > 9_900, known.reads <= 15) == (True, True)


@pytest.mark.parametrize("others", [0, MOST_STORIES])
def test_several_stories_are_told_in_the_order_of_the_journal(
    others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc_journal, "SHORTEST_CHUNK", 2)
    monkeypatch.setattr(rpc_journal, "CHUNK", 3)
    known = Journal([an_event(seq, job_id=JobId(seq % 3)) for seq in range(1, 20)])
    of = {JobId(1), JobId(2), *(JobId(100 + n) for n in range(others))}
    told = [event.seq for event in journal(read(known), 4, of) if event.job_id in of]
    assert told == [seq for seq in range(5, 20) if seq % 3]
    assert [event.seq for event in journal(read(known), 17)] == [18, 19]


async def test_a_search_for_many_jobs_ends_after_a_bounded_part_of_the_journal() -> None:
    """Events of other jobs count too: a journal has millions, and everybody waits meanwhile."""
    known = Journal([an_event(seq, job_id=JobId(1)) for seq in range(1, 2_001)])
    jobs = [str(number) for number in range(2, 3 + MOST_STORIES)]
    looks = list[int]()

    async def breathe(cost: int) -> None:
        looks.append(cost)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rpc_journal, "MOST_READ", 500)
        patch.setattr(rpc_journal, "visible_job", lambda _read, _caller, text: a_job(int(text)))
        request = wire.ListEventsRequest(job_ids=jobs)
        page = await listed_events(read(known), Caller("alice", "user"), request, breathe)
    assert (len(page.events), page.next_page_token, sum(looks)) == (0, "500", 500)
