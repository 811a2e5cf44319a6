"""Jobs as bytes of a list: the standing part of each job is encoded once for all readers.

A row belongs to one value of a job; a changed job has another. Jobs of one loop differ only in
numbers and times, so most of a new row is that of an earlier job. The rest of a job that only waits
is kept until the next plan. The rows of a block of jobs are kept joined, so that a list of many
thousands of jobs has a few hundred parts.

Nothing is stored: a restarted master encodes rows anew. Used in the event loop's thread only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from math import inf
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from dlq.v1 import job_service_pb2
from dlq_master.control.read_model.job_blocks import JobBlock
from dlq_master.control.read_model.published import Published
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.planner.forecasts import Range
from dlq_master.rpc.views.job_view import (
    alike_part,
    is_still,
    likeness,
    own_part,
    present,
    redacted,
)
from dlq_master.store.tables.chosen_policy import Chosen

MOST_KEPT: Final = 100_000  # rows of about 300 bytes
MOST_KINDS: Final = 1_000  # of jobs that are alike
OLDEST_S: Final = 1.0  # of a foreseen start that should have come by now
_JOBS: Final = job_service_pb2.ListJobsResponse.JOBS_FIELD_NUMBER


@dataclass(slots=True)
class _Row:
    """A job as a field of a list, and the values on which that depends."""

    job: Job
    standing: slice  # its part of `content`
    content: bytes
    rest: bytes = b""  # of `content`, behind its standing part
    plan: object = None  # None: the rest of it is made anew each time
    start: Range | None = None
    stop_costs: int = 0


class _Kind(NamedTuple):
    """The common part of alike jobs, and its bytes."""

    likeness: Sequence[Any]
    content: bytes


@dataclass(slots=True)
class _Joined:
    """The rows of a block, and the values on which they depend."""

    plan: object = None
    starts: object = None  # the forecasts
    stop_costs: int = -1
    chosen: Chosen | None = None
    until_s: float = -inf  # then a foreseen start is another
    parts: list[bytes | Job] = field(default_factory=list)  # a job: its row is made each time


class JobRows:
    """The rows that readers have asked for."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._rows: dict[JobId, _Row] = {}
        self._redacted: dict[JobId, tuple[Job, bytes]] = {}
        self._kinds: dict[tuple[str, str, int], _Kind] = {}
        self._joined: WeakKeyDictionary[JobBlock, _Joined] = WeakKeyDictionary()
        self._chosen: Chosen | None = None  # the policy has a part in the words of a row
        self.encoded = 0
        """So many parts so far: the work of lists beyond looking at jobs."""

    def block(self, block: JobBlock, read: Published, now_s: float) -> Sequence[bytes]:
        """All jobs of a block as such fields, in order."""
        kept, plan, starts = self._joined.get(block), read.last_plan(now_s), read.starts(now_s)
        if (
            kept is None
            or now_s >= kept.until_s
            or kept.plan is not plan
            or kept.starts is not starts
            or kept.stop_costs != read.stop_cost_changes
            or kept.chosen is not read.chosen
        ):
            if kept is None:
                kept = self._joined[block] = _Joined()
            ranges = [read.start_range(job) for job in block.jobs]
            kept.parts = [*self._parts(zip(block.jobs, ranges, strict=True), read, now_s, plan)]
            kept.plan, kept.starts, kept.chosen = plan, starts, read.chosen
            kept.stop_costs = read.stop_cost_changes
            kept.until_s = min([_until_s(start, now_s) for start in ranges])
        else:
            read.start_range(block.jobs[0])  # somebody looks at it
        return [
            part if type(part) is bytes else self.row(part, read, now_s)  # type: ignore[arg-type] # a job
            for part in kept.parts
        ]

    def row(self, job: Job, read: Published, now_s: float) -> bytes:
        """The job as a field of ListJobsResponse.jobs."""
        return self._row(job, read.start_range(job), read, now_s, read.last_plan(now_s))

    def _row(
        self, job: Job, start: Range | None, read: Published, now_s: float, plan: object
    ) -> bytes:
        self._follow(read)
        kept, stop_costs = self._rows.get(job.job_id), read.stop_cost_changes
        if kept is not None and kept.job is not job:
            kept = None
        if (
            kept is not None
            and kept.plan is plan
            and kept.stop_costs == stop_costs
            and kept.start == start
        ):
            return kept.content
        standing_part, rest = self._standing(job, read), present(job, read, now_s, start)
        if kept is not None and kept.rest == rest and kept.plan is not None:
            row, content = kept, kept.content
        else:
            content = field_of(_JOBS, standing_part + rest)
            end = len(content) - len(rest)
            row = _Row(job, slice(end - len(standing_part), end), content, rest)
        if is_still(job):
            row.plan, row.stop_costs, row.start = plan, stop_costs, start
        if self._has_room(self._rows, job.job_id, read):
            self._rows[job.job_id] = row
        return content

    def _parts(
        self,
        jobs: Iterable[tuple[Job, Range | None]],
        read: Published,
        now_s: float,
        plan: object,
    ) -> Iterator[bytes | Job]:
        for still, some in groupby(jobs, lambda each: is_still(each[0])):
            if still:
                yield b"".join([self._row(job, start, read, now_s, plan) for job, start in some])
            else:
                yield from [job for job, _ in some]

    def redacted_row(self, job: Job, read: Published, now_s: float) -> bytes:
        """The facts that other users see, as the same field."""
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
        self._follow(read)
        return self._standing(job, read) + present(job, read, now_s, read.start_range(job))

    def _follow(self, read: Published) -> None:
        """Drop all rows if the policy has changed."""
        if read.chosen is not self._chosen:
            self._rows.clear()
            self._kinds.clear()
            self._chosen = read.chosen

    def _standing(self, job: Job, read: Published) -> bytes:
        self.encoded += 1  # a kept row needs only its rest
        kept = self._rows.get(job.job_id)
        if kept is not None and kept.job is job:
            return kept.content[kept.standing]
        return own_part(job) + self._kind(job, read).content

    def _kind(self, job: Job, read: Published) -> _Kind:
        """The common part: that of the last job with the same name and request, if it is alike."""
        key = job.user, job.name, id(job.request)  # a kind keeps its request
        shared, kept = likeness(job), self._kinds.get(key)
        if kept is not None and kept.likeness == shared:
            return kept
        if len(self._kinds) >= MOST_KINDS:
            self._kinds.clear()
        kept = self._kinds[key] = _Kind(shared, alike_part(job, read))
        return kept

    def _has_room(self, rows: dict[JobId, Any], job_id: JobId, read: Published) -> bool:
        """Whether one more row may be kept. Rows of jobs that have gone make room."""
        if job_id not in rows and len(rows) >= self._most:
            here = {job.job_id for job in read.jobs()}
            for gone in rows.keys() - here:
                del rows[gone]
        return job_id in rows or len(rows) < self._most


def _until_s(start: Range | None, now_s: float) -> float:
    """Until when a foreseen range stays as it is. Once it has begun it moves with the clock."""
    if start is None:
        return inf
    return min([at_s if at_s > now_s else now_s + OLDEST_S for at_s in start])


def field_of(number: int, content: bytes) -> bytes:
    """A field with a message as its content."""
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
