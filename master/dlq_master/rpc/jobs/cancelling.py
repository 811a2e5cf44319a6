"""CancelJobs: cancels many jobs in one call and few turns.

A loop of CancelJob would cost one call and one turn for each job.
"""

from __future__ import annotations

from typing import Final

from dlq.v1 import job_service_pb2 as wire
from dlq_common.errors import DlqError, InvalidRequest
from dlq_master.control.stimuli import CancelJob
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.calls.errors import HiddenFromCaller
from dlq_master.rpc.calls.reads import LOOKED_AT
from dlq_master.rpc.jobs.edits import ask_each, job_messages, refusals_of
from dlq_master.rpc.jobs.visible import each_named, visible_jobs
from dlq_master.rpc.specs.spec import check_request_id

MOST_NAMES: Final = 10_000
MOST_JOBS: Final = 100_000
LONGEST_NAME: Final = 64  # of the name in a refusal


async def cancel_jobs(call: Call, request: wire.CancelJobsRequest) -> wire.CancelJobsResponse:
    """Cancel the jobs of each name, in their order. Jobs that have ended stay as they are.

    A name that cannot be cancelled is refused in the response; the others are cancelled all the
    same.
    """
    request_id = check_request_id(request.request_id)
    if not 0 < len(request.job_ids) <= MOST_NAMES:
        raise InvalidRequest(f"a call takes 1 to {MOST_NAMES} names", field="job_ids")
    response = wire.CancelJobsResponse()
    jobs = await _named(call, request, response)

    def cancel(job_id: JobId) -> CancelJob:
        return CancelJob(caller=call.caller, request_id="", job_id=job_id, kill=request.kill)

    answers = await ask_each(call, request_id, list(jobs), cancel, living=False)
    response.refusals.extend(refusals_of(answers))
    if request.with_jobs:
        after = [call.read.job(job_id) or job for job_id, job in jobs.items()]
        response.jobs.extend(await job_messages(call, after))
    return response


async def _named(
    call: Call, request: wire.CancelJobsRequest, response: wire.CancelJobsResponse
) -> dict[JobId, Job]:
    """The jobs that `job_ids` name.

    A name without a job, or with a hidden one, becomes a refusal in `response`. The audit records
    the hidden names.
    """
    found: dict[JobId, Job] = {}
    hidden: list[str] = []
    breathe = call.breathe()

    def look_up(name: str) -> list[Job]:
        try:
            return visible_jobs(call.read, call.caller, name)
        except DlqError as error:
            if isinstance(error, HiddenFromCaller):
                hidden.append(name)
            response.refusals.add(
                job_id=name[:LONGEST_NAME], reason=error.reason, detail=error.what
            )
            return []

    for named in each_named(request.job_ids, look_up, "job_ids"):
        found.update((job.job_id, job) for job in named.jobs)
        if len(found) > MOST_JOBS:
            raise InvalidRequest(f"these are more than {MOST_JOBS} jobs", field="job_ids")
        await breathe(LOOKED_AT * named.cost)
    if hidden:
        peer = call.context.peer()
        await call.parts.record(call.identity, call.path, ",".join(hidden), "HIDDEN", peer)
    return found
