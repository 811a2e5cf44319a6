"""Many ends in one call: a loop of cancels costs a call and a turn each, this one call and few
turns.
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
from dlq_master.rpc.jobs.visible import cost_of, visible_jobs
from dlq_master.rpc.specs.spec import check_request_id

MOST_NAMES: Final = 10_000
MOST_JOBS: Final = 100_000
LONGEST_NAME: Final = 64  # of a name that is told in a refusal


async def cancel_jobs(call: Call, request: wire.CancelJobsRequest) -> wire.CancelJobsResponse:
    """Each name by itself, in their order. Jobs that have ended stay as they are."""
    request_id = check_request_id(request.request_id)
    if not 0 < len(request.job_ids) <= MOST_NAMES:
        raise InvalidRequest(f"a call takes 1 to {MOST_NAMES} names", field="job_ids")
    response = wire.CancelJobsResponse()
    jobs = await _named(call, request, response)
    edits = [
        CancelJob(caller=call.caller, request_id="", job_id=job_id, kill=request.kill)
        for job_id in jobs
    ]
    answers = await ask_each(call, request_id, edits, living=False)
    response.refusals.extend(refusals_of(answers))
    if request.with_jobs:
        after = [call.read.job(job_id) or job for job_id, job in jobs.items()]
        response.jobs.extend(await job_messages(call, after))
    return response


async def _named(
    call: Call, request: wire.CancelJobsRequest, response: wire.CancelJobsResponse
) -> dict[JobId, Job]:
    """The jobs of the names; a name that means none becomes a refusal."""
    found: dict[JobId, Job] = {}
    hidden: list[str] = []
    breathe = call.breathe()
    for name in request.job_ids:
        try:
            meant = visible_jobs(call.read, call.caller, name)
        except DlqError as error:
            if isinstance(error, HiddenFromCaller):
                hidden.append(name)
            response.refusals.add(
                job_id=name[:LONGEST_NAME], reason=error.reason, detail=error.what
            )
            await breathe(LOOKED_AT * cost_of(name, 0))
            continue
        found.update((job.job_id, job) for job in meant)
        if len(found) > MOST_JOBS:
            raise InvalidRequest(f"these are more than {MOST_JOBS} jobs", field="job_ids")
        await breathe(LOOKED_AT * cost_of(name, len(meant)))
    if hidden:
        peer = call.context.peer()
        await call.parts.record(call.identity, call.path, ",".join(hidden), "HIDDEN", peer)
    return found
