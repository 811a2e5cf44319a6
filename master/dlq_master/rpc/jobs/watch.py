"""WatchEvents: the journal as it grows, for one caller, with signs of life in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from dlq.v1 import job_service_pb2 as wire
from dlq_common.errors import InvalidRequest
from dlq_master.control.loop.watch import cursor_expired
from dlq_master.control.read_model.published import Published
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import JobId
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.jobs.journal import MOST_STORIES, WantedEvents, journal, wanted_of
from dlq_master.rpc.jobs.visible import may_see_event, names_others, visible_job
from dlq_master.rpc.views.convert import event_message
from dlq_master.rpc.views.job_view import job_message

KEEP_ALIVE_S = 15.0
FROM_NOW_ON = -1


async def watch_events(
    call: Call, request: wire.WatchEventsRequest, *, keep_alive_s: float = KEEP_ALIVE_S
) -> AsyncIterator[wire.WatchEventsResponse]:
    """Every event after the cursor that the caller may see, then new ones, without end. A watcher
    that lost its right to watch is sent away.
    """
    # NotFound when one of the jobs is not for the caller.
    wanted = frozenset(visible_job(call.read, call.caller, it).job_id for it in request.job_ids)
    filtered = wanted_of(request.filter)
    cursor = _start(call.read, request.cursor, wanted)
    if 0 < len(wanted) <= MOST_STORIES:
        # Their own stories are shorter than everybody's, and whole behind the journal's horizon.
        last = call.read.last_sequence
        for event in journal(call.read, cursor, wanted):
            if event.seq > last:
                break
            call.check_member()
            if message := _named_message(call, event, filtered):
                yield message
        cursor = max(cursor, last)
    source = aiter(call.parts.control.watch(cursor))
    coming = asyncio.ensure_future(anext(source))
    try:
        while True:
            await asyncio.wait((coming,), timeout=keep_alive_s)
            call.check_member()
            if not coming.done():
                yield wire.WatchEventsResponse(cursor=cursor)
                continue
            event = coming.result()
            coming = asyncio.ensure_future(anext(source))
            cursor = event.seq
            if event.job_id in wanted:
                if message := _named_message(call, event, filtered):
                    yield message
            elif (
                not wanted and filtered.has(event) and may_see_event(call.read, call.caller, event)
            ):
                yield _message(call, event)
    finally:
        coming.cancel()
        with suppress(asyncio.CancelledError, StopAsyncIteration):
            await coming


def _start(read: Published, cursor: int, wanted: frozenset[JobId]) -> int:
    """Where to begin; CursorExpired when that is behind the journal's horizon."""
    if cursor < FROM_NOW_ON:
        raise InvalidRequest("a cursor is the sequence of an event, 0 or -1", field="cursor")
    if cursor == FROM_NOW_ON:
        return read.last_sequence
    if 0 < cursor < read.journal_horizon and not _are_whole(read, wanted):
        raise cursor_expired(cursor, read.journal_horizon)
    return cursor


def _are_whole(read: Published, wanted: frozenset[JobId]) -> bool:
    """Whether nothing of these jobs can have been cut: each of them lives."""
    jobs = [read.job(job_id) for job_id in wanted]
    few = 0 < len(jobs) <= MOST_STORIES
    return few and all(job is not None and not job.ended for job in jobs)


def _named_message(
    call: Call, event: JournalEvent, filtered: WantedEvents
) -> wire.WatchEventsResponse | None:
    """For a named job: a reader that filters its events hears of its end all the same."""
    message = _message(call, event)
    if not filtered.has(event):
        job = call.read.job(event.job_id) if event.job_id is not None else None
        if job is None or not job.ended:
            return None
        message.ClearField("event")
    return message


def _message(call: Call, event: JournalEvent) -> wire.WatchEventsResponse:
    read = call.read
    job = read.job(event.job_id) if event.job_id is not None else None
    return wire.WatchEventsResponse(
        event=event_message(event, names=names_others(read, call.caller)),
        cursor=event.seq,
        job=None if job is None else job_message(job, read, call.now_s),
    )
