"""Jobs as the bytes of a list: the standing part of each is encoded once for all who ask.

A row belongs to one value of a job, and a changed job has another. Nothing of it is kept: a master
that starts again encodes what it is asked for. Rows live in the event loop's thread.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from dlq.v1 import job_pb2, job_service_pb2
from dlq_master.control.read_model.published import Published
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.rpc.views.job_view import present, standing
from dlq_master.store.tables.chosen_policy import Chosen

MOST_KEPT: Final = 100_000  # rows of about 300 bytes
_TAG: Final = bytes([job_service_pb2.ListJobsResponse.JOBS_FIELD_NUMBER << 3 | 2])


class JobRows:
    """The rows that have been asked for."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._rows: dict[JobId, tuple[Job, bytes]] = {}
        self._chosen: Chosen | None = None  # the policy has a part in the words of a row
        self.encoded = 0
        """So many parts so far: the work of lists beyond looking at jobs."""

    def row(self, job: Job, read: Published, now_s: float) -> bytes:
        """The job as a field of ListJobsResponse.jobs."""
        return _field(self._standing(job, read) + present(job, read, now_s))

    def once(self, message: job_pb2.Job) -> bytes:
        """A job of which the caller sees less, as the same field."""
        self.encoded += 1
        return _field(message.SerializeToString())

    def _standing(self, job: Job, read: Published) -> bytes:
        if read.chosen is not self._chosen:
            self._rows.clear()
            self._chosen = read.chosen
        kept = self._rows.get(job.job_id)
        if kept is not None and kept[0] is job:
            return kept[1]
        self.encoded += 1
        content = standing(job, read).SerializeToString()
        if kept is not None or len(self._rows) < self._most or self._drop_gone(read):
            self._rows[job.job_id] = job, content
        return content

    def _drop_gone(self, read: Published) -> bool:
        """Make room; whether there is any."""
        here = {job.job_id for job in read.jobs()}
        self._rows = {job_id: row for job_id, row in self._rows.items() if job_id in here}
        return len(self._rows) < self._most


def _field(content: bytes) -> bytes:
    return _head(len(content)) + content


@cache
def _head(size: int) -> bytes:
    """The tag, and the size as a varint."""
    number = bytearray(_TAG)
    while size > 0x7F:
        number.append(size & 0x7F | 0x80)
        size >>= 7
    number.append(size)
    return bytes(number)
