"""One change to one job, or to many tasks of an array: all of them reach the loop in the same
turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypedDict

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_pb2 import Job as JobMessage
from dlq_common.errors import DlqError, InvalidRequest, WorkWouldBeLost
from dlq_master.control.stimuli import JobEdit, UpdatedJob
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.jobs.visible import visible_jobs
from dlq_master.rpc.specs.intake import Edit
from dlq_master.rpc.specs.spec import check_request_id
from dlq_master.rpc.views.job_view import job_message

MOST_TOLD = 8  # tasks that a refusal of all tells; a status holds no more text


class EditRequest(Protocol):
    """The fields of all requests that edit a job."""

    request_id: str
    job_id: str
    expected_version: int


class Changed(TypedDict):
    """The content of the answers to all edits."""

    job: JobMessage
    jobs: list[JobMessage]
    refusals: list[wire.Refusal]


class EditOutcome(NamedTuple):
    """All jobs that were named, after the change, and which of them refused it."""

    jobs: list[Job]
    several: bool
    refusals: list[wire.Refusal]
    changes: list[wire.FieldChange]


async def changed(call: Call, request: EditRequest, make: Callable[[Edit], JobEdit]) -> Changed:
    """Change what the request names, and tell the jobs as they are then."""
    return told(call, await edit_each(call, request, make))


def told(call: Call, outcome: EditOutcome) -> Changed:
    """The jobs of an edit, as their owner sees them."""
    messages = [job_message(job, call.read, call.now_s) for job in outcome.jobs]
    several = messages if outcome.several else []
    return {"job": messages[0], "jobs": several, "refusals": outcome.refusals}


async def edit_each(
    call: Call, request: EditRequest, make: Callable[[Edit], JobEdit]
) -> EditOutcome:
    """Change what the request names. Of several, those that have ended are left alone unless all
    have; when all that are left refuse, the first refusal is raised.
    """
    request_id = check_request_id(request.request_id)
    named = visible_jobs(call.read, call.caller, request.job_id)

    def edit_of(job: Job, request_id: str) -> JobEdit:
        version = request.expected_version
        return make(
            Edit(
                caller=call.caller,
                request_id=request_id,
                job_id=job.job_id,
                expected_version=version,
            )
        )

    if len(named) == 1:
        answer = await call.ask(edit_of(named[0], request_id))
        return EditOutcome([_job(answer)], False, [], _changes(answer))
    if request.expected_version:
        raise InvalidRequest("a version is that of one job", field="expected_version")
    meant = [job for job in named if not job.ended] or named
    # Keys of their own, that a repeat of the request makes again.
    edits = [edit_of(job, f"{request_id}#{job.job_id}") for job in meant]
    answers = await asyncio.gather(*map(call.ask, edits), return_exceptions=True)
    return _gathered(call, named, dict(zip((job.job_id for job in meant), answers, strict=True)))


def _gathered(call: Call, named: list[Job], answers: dict[JobId, object]) -> EditOutcome:
    failures = {key: each for key, each in answers.items() if isinstance(each, BaseException)}
    if len(failures) == len(answers):
        _raise_losses(list(failures.values()))
    for failure in failures.values():
        if not isinstance(failure, DlqError) or len(failures) == len(answers):
            raise failure
    refusals = [
        wire.Refusal(job_id=str(job_id), reason=failure.reason, detail=failure.what)
        for job_id, failure in failures.items()
        if isinstance(failure, DlqError)
    ]
    after = (answers.get(job.job_id) for job in named)
    jobs = [
        _job(answer) if isinstance(answer, Job | UpdatedJob) else call.read.job(job.job_id) or job
        for job, answer in zip(named, after, strict=True)
    ]
    changes = [change for answer in answers.values() for change in _changes(answer)]
    return EditOutcome(jobs, True, refusals, changes)


def _raise_losses(failures: list[BaseException]) -> None:
    """The loss of all of them, in one refusal."""
    losses = [each for each in failures if isinstance(each, WorkWouldBeLost)]
    if losses and len(losses) == len(failures):
        words = "; ".join(each.what for each in losses[:MOST_TOLD])
        more = f"; and {len(losses) - MOST_TOLD} more tasks" if len(losses) > MOST_TOLD else ""
        raise WorkWouldBeLost(words + more, hint=losses[0].hint)


def _job(answer: Job | UpdatedJob) -> Job:
    return answer.job if isinstance(answer, UpdatedJob) else answer


def _changes(answer: object) -> list[wire.FieldChange]:
    if not isinstance(answer, UpdatedJob):
        return []
    job_id = str(answer.job.job_id)
    return [
        wire.FieldChange(job_id=job_id, field=field, before=before, after=after)
        for field, before, after in answer.changes
    ]
