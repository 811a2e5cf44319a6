"""Events with their jobs as the bytes of a watch: encoded once for all who are told of them.

A thousand watchers of the same events cost one encoding of each. Lives in the event loop's thread;
nothing of it is kept when the master ends.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from dlq.v1 import job_service_pb2 as wire
from dlq_master.control.read_model.published import Published
from dlq_master.model.event import JournalEvent
from dlq_master.model.jobs.job import Job
from dlq_master.rpc.views.convert import event_message
from dlq_master.rpc.views.job_rows import JobRows, field_of

MOST_KEPT: Final = 512  # answers: readers that are up to date share the newest
OLDEST_S: Final = 1.0  # of what a job's clock says in them


class _Told(NamedTuple):
    job: Job | None
    at_s: float
    content: bytes


class EventRows:
    """The answers that have been told lately."""

    def __init__(self, jobs: JobRows) -> None:
        self._jobs = jobs
        self._told: dict[tuple[int, bool], _Told] = {}
        self.encoded = 0
        """So many so far."""

    def answer(self, event: JournalEvent, read: Published, now_s: float, *, names: bool) -> bytes:
        """A WatchEventsResponse; without `names` not for whose job another one left its GPUs."""
        job = None if event.job_id is None else read.job(event.job_id)
        told = self._told.get((event.seq, names))
        if told is not None and told.job is job and 0 <= now_s - told.at_s <= OLDEST_S:
            return told.content
        self.encoded += 1
        message = wire.WatchEventsResponse(
            event=event_message(event, names=names), cursor=event.seq
        )
        content = message.SerializeToString() + self._job_field(job, read, now_s)
        if len(self._told) >= MOST_KEPT:
            self._told.clear()
        self._told[event.seq, names] = _Told(job, now_s, content)
        return content

    def job_alone(self, event: JournalEvent, job: Job, read: Published, now_s: float) -> bytes:
        """The same without the event."""
        message = wire.WatchEventsResponse(cursor=event.seq)
        return message.SerializeToString() + self._job_field(job, read, now_s)

    def _job_field(self, job: Job | None, read: Published, now_s: float) -> bytes:
        if job is None:
            return b""
        number = wire.WatchEventsResponse.JOB_FIELD_NUMBER
        return field_of(number, self._jobs.content(job, read, now_s))
