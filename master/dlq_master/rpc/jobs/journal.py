"""Requests for parts of the journal, and how to find them."""

from __future__ import annotations

import heapq
import re
from collections.abc import Collection, Iterator
from itertools import islice
from typing import NamedTuple

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.event_pb2 import EventFilter
from dlq_common.errors import InvalidRequest
from dlq_common.text.names import shown
from dlq_common.text.wire import from_timestamp
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli import Caller
from dlq_master.model.event import JournalEvent
from dlq_master.model.ids import JobId
from dlq_master.rpc.calls.call import page_size_of, position_of
from dlq_master.rpc.calls.reads import ENCODED, LOOKED_AT, Breathe
from dlq_master.rpc.jobs.visible import may_see_event, names_others, visible_job
from dlq_master.rpc.views.convert import event_message

# Events after which a page ends, even if it has found nothing to show.
MOST_READ = 20_000
CHUNK = 256
SHORTEST_CHUNK = 8
MOST_STORIES = 64  # jobs whose past is read one by one
MOST_JOBS = 1_000
MOST_KINDS = 64
MOST_NODES = 1_000
# The most by which the wall clock may have been stepped back between two events, which the journal
# has in the order of writing.
CLOCK_STEP_S = 3600.0
_KIND = re.compile(r"[a-z0-9_]{1,64}\*?|\*", re.ASCII)


class WantedEvents(NamedTuple):
    """The conditions of an EventFilter. Empty: any event."""

    nodes: frozenset[str] = frozenset()
    actors: frozenset[str] = frozenset()  # the same nodes, as the actors
    kinds: frozenset[str] = frozenset()
    stems: tuple[str, ...] = ()  # of kinds
    since_s: float | None = None

    def has(self, event: JournalEvent) -> bool:
        """Whether an event meets the conditions."""
        if self.since_s is not None and event.time_s < self.since_s:
            return False
        if self.nodes and event.node_id not in self.nodes and event.actor not in self.actors:
            return False
        any_kind = not (self.kinds or self.stems)
        return any_kind or event.kind in self.kinds or event.kind.startswith(self.stems)


def wanted_of(asked: EventFilter) -> WantedEvents:
    """The conditions of a request. InvalidRequest: no event can meet them."""
    _check_most(asked.kinds, "filter.kinds", MOST_KINDS)
    _check_most(asked.node_ids, "filter.node_ids", MOST_NODES)
    for kind in asked.kinds:
        if not _KIND.fullmatch(kind):
            told = (
                f"{shown(kind)} is no kind of events, such as job_requeued, or promise_* for "
                "all that begin so"
            )
            raise InvalidRequest(told, field="filter.kinds")
    stems = [kind.removesuffix("*") for kind in asked.kinds if kind.endswith("*")]
    return WantedEvents(
        nodes=frozenset(asked.node_ids),
        actors=frozenset(f"node:{node_id}" for node_id in asked.node_ids),
        kinds=frozenset(kind for kind in asked.kinds if not kind.endswith("*")),
        stems=tuple(sorted(stems)),
        since_s=from_timestamp(asked.since_time) if asked.HasField("since_time") else None,
    )


async def listed_events(
    read: Published, caller: Caller, request: wire.ListEventsRequest, breathe: Breathe
) -> wire.ListEventsResponse:
    """A page of events that the caller may see. NotFound: the job is hidden from the caller."""
    filtered, jobs = wanted_of(request.filter), _jobs(read, caller, request)
    most = page_size_of(request.page_size)
    # Before the list, as in ListJobs.
    end = read.last_sequence
    response = wire.ListEventsResponse(horizon=read.journal_horizon)
    last = position_of(request.page_token)
    if filtered.since_s is not None and not jobs:
        last = _begin_of(read, last, filtered.since_s)
    response.cursor, seen = last, 0
    for event in islice(journal(read, last, jobs), MOST_READ):
        seen += 1
        await breathe(LOOKED_AT)
        if jobs and event.job_id not in jobs:
            last = event.seq
            continue
        if len(response.events) == most:
            response.next_page_token = str(last)
            response.cursor = last
            return response
        last = event.seq
        if filtered.has(event) and may_see_event(read, caller, event):
            response.events.append(event_message(event, names=names_others(read, caller)))
            await breathe(ENCODED)
    if seen == MOST_READ:
        response.next_page_token = str(last)
    response.cursor = last if response.next_page_token else max(last, end)
    return response


def journal(read: Published, after: int, of: Collection[JobId] = ()) -> Iterator[JournalEvent]:
    """The journal behind a position, oldest first.

    Of few jobs it has only their events. Of many, or of none, it has the events of all jobs: the
    next event of some jobs may stand behind millions.
    """
    if not 0 < len(of) <= MOST_STORIES:
        return _story(read, after, None, CHUNK)
    chunk = max(SHORTEST_CHUNK, CHUNK // len(of))  # one of each is read at once
    stories = [_story(read, after, job_id, chunk) for job_id in sorted(of)]
    return heapq.merge(*stories, key=lambda event: event.seq)


# --- helpers, in order of use ---------------------------------------------------------------------


def _check_most(words: Collection[str], field: str, most: int) -> None:
    if len(words) > most:
        raise InvalidRequest(f"more than {most} {field}", field=field)


def _jobs(read: Published, caller: Caller, request: wire.ListEventsRequest) -> frozenset[JobId]:
    _check_most(request.job_ids, "job_ids", MOST_JOBS)
    named = [*([request.job_id] if request.job_id else []), *request.job_ids]
    return frozenset([visible_job(read, caller, text).job_id for text in named])


def _begin_of(read: Published, after: int, since_s: float) -> int:
    """A position before all events of this time, found by O(log) reads of one event each."""
    low, high = after, max(after, read.last_sequence)
    while low < high:
        middle = (low + high) // 2
        found = read.events(middle, 1)
        if found and found[0].time_s < since_s - CLOCK_STEP_S:
            low = found[0].seq
        else:
            high = middle
    return low


def _story(read: Published, after: int, job_id: JobId | None, size: int) -> Iterator[JournalEvent]:
    while True:
        chunk = read.events(after, size, job_id)
        yield from chunk
        if len(chunk) < size:
            return
        after = chunk[-1].seq
