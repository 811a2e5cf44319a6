"""Many jobs in one call: a loop of submits costs a call each, this one call and few turns."""

from __future__ import annotations

import asyncio
from typing import Final

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_pb2 import JobSpec
from dlq_common.errors import DlqError, InvalidRequest
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.specs.intake import job_stimulus
from dlq_master.rpc.specs.spec import check_request_id

MOST_AT_ONCE: Final = 1_000
IN_FLIGHT: Final = 64
"""Submits of one call that wait for the loop together: those of others come in between."""


async def submit_jobs(call: Call, request: wire.SubmitJobsRequest) -> wire.SubmitJobsResponse:
    """Each spec by itself, in their order, with a key of its own that a repeat makes again."""
    request_id = check_request_id(request.request_id)
    if not 0 < len(request.specs) <= MOST_AT_ONCE:
        raise InvalidRequest(f"a call takes 1 to {MOST_AT_ONCE} jobs", field="specs")
    response = wire.SubmitJobsResponse()
    for first in range(0, len(request.specs), IN_FLIGHT):
        specs = request.specs[first : first + IN_FLIGHT]
        asked = [
            _submit(call, spec, f"{request_id}#{number}")
            for number, spec in enumerate(specs, first)
        ]
        response.jobs.extend(await asyncio.gather(*asked))
    return response


async def _submit(call: Call, spec: JobSpec, key: str) -> wire.SubmittedJob:
    try:
        submitted = await call.ask(job_stimulus(spec, call.caller, key, brief=True))
    except DlqError as error:
        return wire.SubmittedJob(refusal=wire.Refusal(reason=error.reason, detail=error.what))
    array = submitted.job.array
    return wire.SubmittedJob(job_id=str(array.array_id if array else submitted.job.job_id))
