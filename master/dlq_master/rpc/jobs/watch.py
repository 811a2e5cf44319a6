"""WatchEvents: the journal as it grows, for one caller, with signs of life in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from dlq.v1 import job_service_pb2 as wire
from dlq_common.clock import Clock
from dlq_common.errors import InvalidRequest
from dlq_master.control.loop.ports import Control
from dlq_master.control.read_model.watch import cursor_expired
from dlq_master.control.stimuli import Caller
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import JobId
from dlq_master.rpc.calls.auth import Door, caller_of, identity_of
from dlq_master.rpc.calls.call import Context
from dlq_master.rpc.jobs.journal import MOST_STORIES, WantedEvents, journal, wanted_of
from dlq_master.rpc.jobs.visible import may_see_event, names_others, visible_job
from dlq_master.rpc.views.convert import event_message, job_message

KEEP_ALIVE_S = 15.0
FROM_NOW_ON = -1


class Watch:
    """Serves any number of watchers. One that lost its right to watch is sent away."""

    def __init__(
        self, control: Control, clock: Clock, door: Door, *, keep_alive_s: float = KEEP_ALIVE_S
    ) -> None:
        self._control = control
        self._clock = clock
        self._door = door
        self._keep_alive_s = keep_alive_s

    async def events(
        self, request: wire.WatchEventsRequest, context: Context
    ) -> AsyncIterator[wire.WatchEventsResponse]:
        """Every event after the cursor that the caller may see, then new ones, without end."""
        caller, identity = caller_of(context), identity_of(context)
        wanted, filtered = self._named(request, caller), wanted_of(request.filter)
        cursor = self._start(request.cursor, wanted)
        if 0 < len(wanted) <= MOST_STORIES:
            # Their own stories are shorter than everybody's, and whole behind the journal's
            # horizon.
            last = self._control.published.last_sequence
            for event in journal(self._control.published, cursor, wanted):
                if event.seq > last:
                    break
                self._door.check_member(identity)
                if message := self._named_message(event, filtered, caller):
                    yield message
            cursor = max(cursor, last)
        source = aiter(self._control.watch(cursor))
        coming = asyncio.ensure_future(anext(source))
        try:
            while True:
                await asyncio.wait((coming,), timeout=self._keep_alive_s)
                self._door.check_member(identity)
                if not coming.done():
                    yield wire.WatchEventsResponse(cursor=cursor)
                    continue
                event = coming.result()
                coming = asyncio.ensure_future(anext(source))
                cursor = event.seq
                if event.job_id in wanted:
                    if message := self._named_message(event, filtered, caller):
                        yield message
                elif not wanted and filtered.has(event) and self._may_see(event, caller):
                    yield self._message(event, caller)
        finally:
            coming.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration):
                await coming

    def _named(self, request: wire.WatchEventsRequest, caller: Caller) -> frozenset[JobId]:
        """The jobs asked for; NotFound when one of them is not for the caller."""
        read = self._control.published
        return frozenset(visible_job(read, caller, text).job_id for text in request.job_ids)

    def _start(self, cursor: int, wanted: frozenset[JobId]) -> int:
        """Where to begin; CursorExpired when that is behind the journal's horizon."""
        read = self._control.published
        if cursor < FROM_NOW_ON:
            raise InvalidRequest("a cursor is the sequence of an event, 0 or -1", field="cursor")
        if cursor == FROM_NOW_ON:
            return read.last_sequence
        if 0 < cursor < read.journal_horizon and not self._are_whole(wanted):
            raise cursor_expired(cursor, read.journal_horizon)
        return cursor

    def _are_whole(self, wanted: frozenset[JobId]) -> bool:
        """Whether nothing of these jobs can have been cut: each of them lives."""
        jobs = [self._control.published.job(job_id) for job_id in wanted]
        few = 0 < len(jobs) <= MOST_STORIES
        return few and all(job is not None and not job.ended for job in jobs)

    def _may_see(self, event: JournalEvent, caller: Caller) -> bool:
        return may_see_event(self._control.published, caller, event)

    def _named_message(
        self, event: JournalEvent, filtered: WantedEvents, caller: Caller
    ) -> wire.WatchEventsResponse | None:
        """For a named job: a reader that filters its events hears of its end all the same."""
        message = self._message(event, caller)
        if not filtered.has(event):
            job = self._control.published.job(event.job_id) if event.job_id is not None else None
            if job is None or not job.ended:
                return None
            message.ClearField("event")
        return message

    def _message(self, event: JournalEvent, caller: Caller) -> wire.WatchEventsResponse:
        read = self._control.published
        told = event_message(event, names=names_others(read, caller))
        message = wire.WatchEventsResponse(event=told, cursor=event.seq)
        job = read.job(event.job_id) if event.job_id is not None else None
        if job is not None:
            message.job.CopyFrom(job_message(job, read, self._clock.now_s()))
        return message
