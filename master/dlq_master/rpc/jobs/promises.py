"""Promised deadlines: jobs with a promise, promises in danger, and the record of each team."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice

from dlq.v1 import job_pb2
from dlq.v1 import promise_service_pb2 as wire
from dlq_common.errors import InvalidRequest
from dlq_common.text.wire import to_timestamp
from dlq_master.control.read_model.job_blocks import EVERYBODY
from dlq_master.control.read_model.promise_index import PromiseOutcome
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.rpc.calls.call import Call, position_of
from dlq_master.rpc.calls.reads import ENCODED, LOOKED_AT
from dlq_master.rpc.views.job_view import job_message

USUAL_PAGE, LARGEST_PAGE = 200, 1_000
MOST_ENDANGERED, MOST_MISSED = 50, 50


async def list_promises(call: Call, request: wire.ListPromisesRequest) -> bytes:
    """The answer as bytes, since parts of its jobs are encoded already."""
    read, caller = call.read, call.caller
    if request.page_size < 0:
        raise InvalidRequest("page_size is negative", field="page_size")
    most = min(request.page_size or USUAL_PAGE, LARGEST_PAGE)
    after = position_of(request.page_token)
    user = EVERYBODY if caller.sees_all else caller.name
    ids = read.with_deadlines(user, after)
    page = await _seen(call, ids, most + 1)
    endangered = [
        job
        for job in map(read.job, read.endangered())
        if job is not None and job.promised is not None and caller.may_see(job)
    ]
    answer = wire.ListPromisesResponse(
        next_page_token=str(page[most - 1].job_id) if len(page) > most else "",
        promised_count=read.promised_count(user),
        endangered_count=len(endangered),
        kept_target=read.kept_target,
    )
    if not after:
        answer.endangered_jobs.extend(await _told(call, endangered[:MOST_ENDANGERED]))
        await _add_record(call, answer)
    return b"".join((*await _rows(call, page[:most]), answer.SerializeToString()))


async def _rows(call: Call, jobs: Sequence[Job]) -> list[bytes]:
    """The jobs as the field `jobs`, which has the same number as in ListJobsResponse."""
    rows, breathe, found = call.parts.rows, call.breathe(), []
    for job in jobs:
        encoded = rows.encoded
        found.append(rows.row(job, call.read, call.now_s))
        await breathe(ENCODED * (rows.encoded - encoded))
    return found


async def _seen(call: Call, ids: Iterable[JobId], most: int) -> list[Job]:
    """The first of these jobs that the caller may see."""
    breathe, found = call.breathe(), []
    for job_id in ids:
        await breathe(LOOKED_AT)
        job = call.read.job(job_id)
        if job is not None and call.caller.may_see(job):
            found.append(job)
        if len(found) == most:
            break
    return found


async def _add_record(call: Call, answer: wire.ListPromisesResponse) -> None:
    """Add past promises: numbers by team, and the latest broken ones."""
    read = call.read
    over = [(job, outcome) for job, outcome in read.promises_over() if call.caller.may_see(job)]
    counts: defaultdict[str, Counter[PromiseOutcome]] = defaultdict(Counter)
    for job, outcome in over:
        counts[job.team][outcome] += 1
    for team in sorted(counts):
        answer.records.add(
            team=team,
            kept_count=counts[team][PromiseOutcome.KEPT],
            missed_count=counts[team][PromiseOutcome.MISSED],
            broken_count=counts[team][PromiseOutcome.BROKEN],
        )
    if read.promises_over_from_s > 0.0:
        answer.record_from_time.CopyFrom(to_timestamp(read.promises_over_from_s))
    not_kept = (job for job, outcome in over if outcome is not PromiseOutcome.KEPT)
    answer.missed_jobs.extend(await _told(call, list(islice(not_kept, MOST_MISSED))))


async def _told(call: Call, jobs: Sequence[Job]) -> Iterable[job_pb2.Job]:
    breathe, told = call.breathe(), []
    for job in jobs:
        told.append(job_message(job, call.read, call.now_s))
        await breathe(ENCODED)
    return told
