"""Events with their jobs as bytes for watches, encoded once for all watchers.

A thousand watchers of the same events cost one encoding of each. Messages with several events are
assembled once for all who get the same. Used in the event loop's thread; nothing is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from dlq.v1 import job_service_pb2 as wire
from dlq_master.control.read_model.published import Published
from dlq_master.model.event import JournalEvent
from dlq_master.model.jobs.job import Job
from dlq_master.rpc.views.convert import event_message
from dlq_master.rpc.views.job_rows import JobRows, field_of

MOST_KEPT: Final = 2_048  # answers: readers that are nearly up to date share the newest
MOST_GATHERED: Final = 64  # messages of several
OLDEST_S: Final = 1.0  # how long messages with a job's clock are shared


class _Told(NamedTuple):
    job: Job | None
    at_s: float
    content: bytes


class EventRows:
    """The latest answers."""

    def __init__(self, jobs: JobRows) -> None:
        self._jobs = jobs
        self._told: dict[tuple[int, bool], _Told] = {}
        self._gathered: dict[tuple[int, int, int], tuple[float, bytes]] = {}
        self.encoded = 0
        """So many so far."""

    def answer(self, event: JournalEvent, read: Published, now_s: float, *, names: bool) -> bytes:
        """A WatchEventsResponse. Without `names` it does not tell for whose job another one left
        its GPUs.
        """
        job = None if event.job_id is None else read.job(event.job_id)
        told = self._told.get((event.seq, names))
        if told is not None and told.job is job and 0 <= now_s - told.at_s <= OLDEST_S:
            return told.content
        self.encoded += 1
        message = wire.WatchEventsResponse(
            event=event_message(event, names=names), cursor=event.seq
        )
        content = message.SerializeToString() + self._job_field(job, read, now_s)
        _make_room(self._told, MOST_KEPT)
        self._told[event.seq, names] = _Told(job, now_s, content)
        return content

    def gathered(self, events: Sequence[JournalEvent], read: Published, now_s: float) -> bytes:
        """All events from the first to the last as one message, with all names."""
        reach = read.people_version, events[0].seq, events[-1].seq
        at_s, content = self._gathered.get(reach, (now_s - 2 * OLDEST_S, b""))
        if not 0 <= now_s - at_s <= OLDEST_S:
            content = joined([self.answer(event, read, now_s, names=True) for event in events])
            version = wire.WatchEventsResponse(people_version=read.people_version)
            content += version.SerializeToString()
            self._gathered.pop(reach, None)
            _make_room(self._gathered, MOST_GATHERED)
            self._gathered[reach] = now_s, content
        return content

    def job_alone(self, event: JournalEvent, job: Job, read: Published, now_s: float) -> bytes:
        """The job without the event."""
        message = wire.WatchEventsResponse(cursor=event.seq)
        return message.SerializeToString() + self._job_field(job, read, now_s)

    def _job_field(self, job: Job | None, read: Published, now_s: float) -> bytes:
        if job is None:
            return b""
        number = wire.WatchEventsResponse.JOB_FIELD_NUMBER
        return field_of(number, self._jobs.content(job, read, now_s))


def joined(answers: Sequence[bytes]) -> bytes:
    """Several answers as one: the first contains the others."""
    number = wire.WatchEventsResponse.MORE_FIELD_NUMBER
    return answers[0] + b"".join([field_of(number, each) for each in answers[1:]])


def _make_room(kept: dict[Any, Any], most: int) -> None:
    if len(kept) >= most:
        del kept[next(iter(kept))]  # the oldest
