"""Jobs as the bytes of a list: the standing part of each is encoded once for all who ask.

A row belongs to one value of a job, and a changed job has another. The rest of a job that only
waits stays with it until the next plan. Nothing of it is kept: a master that starts again encodes
what it is asked for. Rows live in the event loop's thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from dlq.v1 import job_service_pb2
from dlq_master.control.read_model.published import Published
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.planner.forecasts import Range
from dlq_master.rpc.views.job_view import is_still, present, redacted, standing
from dlq_master.store.tables.chosen_policy import Chosen

MOST_KEPT: Final = 100_000  # rows of about 300 bytes
_JOBS: Final = job_service_pb2.ListJobsResponse.JOBS_FIELD_NUMBER


@dataclass(slots=True)
class _Row:
    """A job as a field of a list, and what that stands on."""

    job: Job
    standing: slice  # its part of `content`
    content: bytes
    plan: object = None  # None: the rest of it is made anew each time
    start: Range | None = None
    stop_costs: int = 0


class JobRows:
    """The rows that have been asked for."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._rows: dict[JobId, _Row] = {}
        self._redacted: dict[JobId, tuple[Job, bytes]] = {}
        self._chosen: Chosen | None = None  # the policy has a part in the words of a row
        self.encoded = 0
        """So many parts so far: the work of lists beyond looking at jobs."""

    def row(self, job: Job, read: Published, now_s: float) -> bytes:
        """The job as a field of ListJobsResponse.jobs."""
        kept, plan = self._rows.get(job.job_id), read.last_plan(now_s)
        if (
            kept is not None
            and kept.plan is plan
            and kept.job is job
            and kept.stop_costs == read.stop_cost_changes
            and kept.start == read.start_range(job)
            and read.chosen is self._chosen
        ):
            return kept.content
        standing_part = self._standing(job, read)
        content = field_of(_JOBS, standing_part + present(job, read, now_s))
        begin = content.index(standing_part)
        row = _Row(job, slice(begin, begin + len(standing_part)), content)
        if is_still(job):
            row.plan, row.stop_costs = plan, read.stop_cost_changes
            row.start = read.start_range(job)
        if self._has_room(self._rows, job.job_id, read):
            self._rows[job.job_id] = row
        return content

    def redacted_row(self, job: Job, read: Published, now_s: float) -> bytes:
        """As much of it as other people see, as the same field."""
        kept = self._redacted.get(job.job_id)
        if kept is not None and kept[0] is job:
            return kept[1]
        self.encoded += 1
        content = field_of(_JOBS, redacted(job, read, now_s).SerializeToString())
        if job.live_attempt is None and self._has_room(self._redacted, job.job_id, read):
            self._redacted[job.job_id] = job, content
        return content

    def content(self, job: Job, read: Published, now_s: float) -> bytes:
        """The job as its owner sees it."""
        return self._standing(job, read) + present(job, read, now_s)

    def _standing(self, job: Job, read: Published) -> bytes:
        if read.chosen is not self._chosen:
            self._rows.clear()
            self._chosen = read.chosen
        self.encoded += 1  # of a row that is kept only the rest
        kept = self._rows.get(job.job_id)
        if kept is not None and kept.job is job:
            return kept.content[kept.standing]
        return standing(job, read).SerializeToString()

    def _has_room(self, rows: dict[JobId, Any], job_id: JobId, read: Published) -> bool:
        """Whether this one may be kept; rows of jobs that have gone make room."""
        if job_id not in rows and len(rows) >= self._most:
            here = {job.job_id for job in read.jobs()}
            for gone in rows.keys() - here:
                del rows[gone]
        return job_id in rows or len(rows) < self._most


def field_of(number: int, content: bytes) -> bytes:
    """A field that is a message, with this content."""
    return _head(number, len(content)) + content


@cache
def _head(number: int, size: int) -> bytes:
    """The tag, and the size as a varint."""
    head = bytearray([number << 3 | 2])
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head)
