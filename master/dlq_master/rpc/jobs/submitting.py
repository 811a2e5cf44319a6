"""Many jobs in one call: a loop of submits costs a call each, this one call and few turns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_pb2 import JobSpec
from dlq_common.errors import DlqError, InvalidRequest
from dlq_master.control.stimuli import SubmitJob, SubmitMany
from dlq_master.model.ids import JobId
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.specs.intake import job_stimulus
from dlq_master.rpc.specs.spec import check_request_id

if TYPE_CHECKING:
    from dlq_master.rpc.specs.hooked import SubmitHooks

MOST_AT_ONCE: Final = 1_000
IN_A_TURN: Final = 250
"""Submits of one call that come in one turn: those of others come in between."""


async def submit_jobs(call: Call, request: wire.SubmitJobsRequest) -> wire.SubmitJobsResponse:
    """Each spec by itself, in their order, with a key of its own that a repeat makes again."""
    request_id = check_request_id(request.request_id)
    if not 0 < len(request.specs) <= MOST_AT_ONCE:
        raise InvalidRequest(f"a call takes 1 to {MOST_AT_ONCE} jobs", field="specs")
    response = wire.SubmitJobsResponse()
    specs = enumerate(request.specs)
    while some := [(f"{request_id}#{number}", spec) for number, spec in islice(specs, IN_A_TURN)]:
        response.jobs.extend(await _submit(call, some))
    return response


async def _submit(call: Call, specs: Sequence[tuple[str, JobSpec]]) -> list[wire.SubmittedJob]:
    """The answers to these specs, which have their keys."""
    asks = [_asked(call, key, spec) for key, spec in specs]
    if call.parts.hooks is not None:
        return await _submit_by_hooks(call, call.parts.hooks, specs, asks)
    return await _submit_asks(call, specs, asks)


async def _submit_by_hooks(
    call: Call,
    hooks: SubmitHooks,
    specs: Sequence[tuple[str, JobSpec]],
    asks: Sequence[SubmitJob | DlqError],
) -> list[wire.SubmittedJob]:
    """The operator's hook sees one after the other. Few masters have one."""
    seen = [
        await hooks.seen_or_refused(spec, ask)
        for (_key, spec), ask in zip(specs, asks, strict=True)
    ]
    call.hook = "; ".join(filter(None, (one.hooked for one in seen if isinstance(one, SubmitJob))))
    told = await _submit_asks(call, specs, seen)
    for one in told:
        one.hook_notes.extend(hooks.notes_of_job(call.read, one.job_id))
    return told


async def _submit_asks(
    call: Call, specs: Sequence[tuple[str, JobSpec]], asks: Sequence[SubmitJob | DlqError]
) -> list[wire.SubmittedJob]:
    good = tuple(ask for ask in asks if isinstance(ask, SubmitJob))
    ask = SubmitMany(caller=call.caller, request_id=specs[0][0], asks=good)
    answers = iter(await call.ask(ask) if good else ())
    return [_told(next(answers) if isinstance(ask, SubmitJob) else ask) for ask in asks]


def _asked(call: Call, key: str, spec: JobSpec) -> SubmitJob | DlqError:
    try:
        return job_stimulus(spec, call.caller, key, brief=True)
    except DlqError as error:
        return error


def _told(answer: JobId | DlqError) -> wire.SubmittedJob:
    if isinstance(answer, DlqError):
        return wire.SubmittedJob(refusal=wire.Refusal(reason=answer.reason, detail=answer.what))
    return wire.SubmittedJob(job_id=str(answer))
