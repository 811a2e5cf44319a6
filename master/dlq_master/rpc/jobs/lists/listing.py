"""The jobs of a list by id, some at a time, and their total.

Jobs in memory and jobs on disk form one list. A block of alike jobs is counted as a whole, and
other blocks by the notes of an earlier look. SQLite counts the jobs on disk, outside the loop. A
job that ends meanwhile may be counted twice, or not at all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from dlq_master.control.read_model.job_blocks import JobBlock, ids_of
from dlq_master.control.read_model.published import Published
from dlq_master.model.jobs.job import Job
from dlq_master.rpc.jobs.lists.selection import AT_ONCE
from dlq_master.rpc.jobs.lists.wanted import Wanted

PAST_AT_ONCE: Final = 256  # rows of the disk


class ListedJobs(NamedTuple):
    """Some jobs of a list."""

    jobs: Sequence[Job]
    block: JobBlock | None = None  # the jobs are this whole block


async def listed(wanted: Wanted, after: int) -> AsyncIterator[ListedJobs]:
    """The jobs of the list with ids above `after`, some at a time, across pages."""
    async for some in _candidates(wanted, after):
        if not isinstance(some, JobBlock):
            jobs = await wanted.selection.of_some(some)
        else:
            jobs = await wanted.selection.of_block(some)
            if jobs and jobs is some.jobs:
                yield ListedJobs(jobs, some)
                continue
        async for part in parts_of(jobs):
            yield part


async def total(wanted: Wanted) -> int:
    """The number of jobs on all pages."""
    if wanted.named is not None:
        return len(await wanted.selection.of_some(list(wanted.named.values())))
    count = 0 if wanted.past is None else await wanted.read.past_count(wanted.past)
    for number in wanted.read.block_numbers(wanted.user, 0):
        count += await _of_block(wanted, wanted.read.block(wanted.user, number))
    return count


async def _of_block(wanted: Wanted, block: JobBlock) -> int:
    jobs = await wanted.selection.of_block(block)
    if wanted.past is None or not block.ended:
        return len(jobs)
    return _not_ended(jobs)  # the disk has the others


def _not_ended(jobs: Iterable[Job]) -> int:
    return sum(job.end_time_s is None for job in jobs)


async def parts_of(jobs: Sequence[Job]) -> AsyncIterator[ListedJobs]:
    """A sequence of jobs, some at a time."""
    for first in range(0, len(jobs), AT_ONCE):
        yield ListedJobs(jobs[first : first + AT_ONCE])


async def _candidates(wanted: Wanted, after: int) -> AsyncIterator[Sequence[Job] | JobBlock]:
    """The jobs of the list's user. The disk is read only for past jobs."""
    read, user = wanted.read, wanted.user
    if wanted.named is not None:
        by_id = wanted.named
        yield [by_id[job_id] for job_id in sorted(by_id) if job_id > after]
        return
    past = wanted.past
    while past is not None and (chunk := await read.past_jobs(past, after, PAST_AT_ONCE)):
        for some in _with_past(chunk, user, read, after):
            yield some
        after = chunk[-1].job_id
        if len(chunk) < PAST_AT_ONCE:
            break
    # A job may leave memory before its block is read. Then it has ended before the times that are
    # asked for, or thousands of other jobs have ended within this list.
    for number in read.block_numbers(user, after):
        block = read.block(user, number)
        whole = not block.jobs or block.jobs[0].job_id > after
        yield block if whole else _between(block, after, ids_of(number)[-1])


def _with_past(
    chunk: Sequence[Job], user: str, read: Published, after: int
) -> Iterator[Sequence[Job] | JobBlock]:
    """Jobs on disk, merged with jobs in memory by id. Of a job in both, the value in
    memory counts.
    """
    place, last = 0, chunk[-1].job_id
    for number in read.block_numbers(user, after):
        ids = ids_of(number)
        if ids[0] > last:
            break
        block, first = read.block(user, number), place
        while place < len(chunk) and chunk[place].job_id <= ids[-1]:
            place += 1
        if first == place and after < ids[0]:
            yield block
        else:
            both = {job.job_id: job for job in chunk[first:place]}
            both |= {job.job_id: job for job in _between(block, after, last)}
            yield [both[job_id] for job_id in sorted(both)]
    yield chunk[place:]


def _between(block: JobBlock, after: int, last: int) -> Sequence[Job]:
    return [job for job in block.jobs if after < job.job_id <= last]
