"""WatchEvents: the journal as it grows, for one caller, with keep-alive messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import Final

from dlq.v1 import job_service_pb2 as wire
from dlq_common.errors import InvalidRequest
from dlq_master.control.loop.watch import GATHERED, Interest, cursor_expired
from dlq_master.control.read_model.published import Published
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import JobId
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.calls.reads import LOOKED_AT
from dlq_master.rpc.jobs.journal import MOST_STORIES, WantedEvents, journal, wanted_of
from dlq_master.rpc.jobs.visible import cost_of, may_see_event, names_others, visible_job
from dlq_master.rpc.views.event_rows import joined

KEEP_ALIVE_S = 15.0
FROM_NOW_ON = -1
MOST_WATCHED: Final = 100_000


async def watch_events(
    call: Call, request: wire.WatchEventsRequest, *, keep_alive_s: float = KEEP_ALIVE_S
) -> AsyncIterator[wire.WatchEventsResponse | bytes]:
    """Every event after the cursor that the caller may see, then new ones, without end."""
    if len(request.job_ids) > MOST_WATCHED:
        raise InvalidRequest(f"more than {MOST_WATCHED} job_ids", field="job_ids")
    wanted = await _jobs_of(call, request.job_ids)
    filtered = wanted_of(request.filter)
    cursor = _start(call.read, request.cursor, wanted)
    if 0 < len(wanted) <= MOST_STORIES:
        # Their own stories are shorter than everybody's, and whole behind the journal's horizon.
        last = call.read.last_sequence
        breathe = call.breathe()
        for event in journal(call.read, cursor, wanted):
            if event.seq > last:
                break
            await breathe(LOOKED_AT)  # the filter may want none of thousands
            call.check_member()
            if answer := _named_answer(call, event, filtered):
                yield answer
        cursor = max(cursor, last)
    user = "" if call.caller.hears_all else call.caller.name
    interest, gathered = Interest(wanted, user), request.gathered
    whole = gathered and call.caller.sees_all and not wanted and filtered == WantedEvents()
    with call.parts.control.watch(cursor, interest, gathered=gathered) as stream:
        while True:
            events = await stream.more(keep_alive_s)
            call.check_member()
            if not events:
                cursor = max(cursor, stream.seen)
                version = call.read.people_version if whole else 0
                yield wire.WatchEventsResponse(cursor=cursor, people_version=version)
                continue
            cursor = events[-1].seq
            if whole:
                yield call.parts.events.gathered(events, call.read, call.now_s)
                continue
            answers = _answers(call, events, wanted, filtered)
            while some := [*islice(answers, GATHERED if gathered else 1)]:
                yield joined(some)
                call.check_member()


def _answers(
    call: Call, events: Iterable[JournalEvent], wanted: frozenset[JobId], filtered: WantedEvents
) -> Iterator[bytes]:
    """The events that the caller may see and has asked for, encoded."""
    for event in events:
        if event.job_id in wanted:
            if answer := _named_answer(call, event, filtered):
                yield answer
        elif not wanted and filtered.has(event) and may_see_event(call.read, call.caller, event):
            yield _answer(call, event)


async def _jobs_of(call: Call, names: Iterable[str]) -> frozenset[JobId]:
    """The named jobs. NotFound: one of them is hidden from the caller."""
    found, breathe = set[JobId](), call.breathe()
    for name in dict.fromkeys(names):
        found.add(visible_job(call.read, call.caller, name).job_id)
        await breathe(LOOKED_AT * cost_of(name, 1))
    return frozenset(found)


def _start(read: Published, cursor: int, wanted: frozenset[JobId]) -> int:
    """The position to begin at. CursorExpired: it is behind the journal's horizon."""
    if cursor < FROM_NOW_ON:
        raise InvalidRequest("a cursor is the sequence of an event, 0 or -1", field="cursor")
    if cursor == FROM_NOW_ON:
        return read.last_sequence
    if 0 < cursor < read.journal_horizon and not _are_whole(read, wanted):
        raise cursor_expired(cursor, read.journal_horizon)
    return cursor


def _are_whole(read: Published, wanted: frozenset[JobId]) -> bool:
    """Whether no events of these jobs can have been cut off: each of them lives."""
    jobs = [read.job(job_id) for job_id in wanted]
    few = 0 < len(jobs) <= MOST_STORIES
    return few and all(job is not None and not job.ended for job in jobs)


def _named_answer(call: Call, event: JournalEvent, filtered: WantedEvents) -> bytes | None:
    """An event of a named job. Even if the filter excludes it, the reader is told of
    the job's end.
    """
    if filtered.has(event):
        return _answer(call, event)
    job = call.read.job(event.job_id) if event.job_id is not None else None
    if job is None or not job.ended:
        return None
    return call.parts.events.job_alone(event, job, call.read, call.now_s)


def _answer(call: Call, event: JournalEvent) -> bytes:
    names = names_others(call.read, call.caller)
    return call.parts.events.answer(event, call.read, call.now_s, names=names)
