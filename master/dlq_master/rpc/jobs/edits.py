"""One change to one job, or to many tasks of an array: all of them reach the loop in the same
turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from dlq.v1 import job_service_pb2 as wire
from dlq_common.errors import DlqError, InvalidRequest, WorkWouldBeLost
from dlq_master.control.loop.ports import Control
from dlq_master.control.stimuli import Caller, JobEdit, UpdatedJob
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.rpc.jobs.visible import visible_jobs
from dlq_master.rpc.specs.edit import Edit, EditRequest
from dlq_master.rpc.specs.spec import check_request_id

MOST_TOLD = 8  # tasks that a refusal of all tells; a status holds no more text


class EditOutcome(NamedTuple):
    """All jobs that were named, after the change, and which of them refused it."""

    jobs: list[Job]
    several: bool
    refusals: list[wire.Refusal]
    changes: list[wire.FieldChange]


async def edit_each(
    control: Control, request: EditRequest, caller: Caller, make: Callable[[Edit], JobEdit]
) -> EditOutcome:
    """Change what the request names. Of several, those that have ended are left alone unless all
    have; when all that are left refuse, the first refusal is raised.
    """
    request_id = check_request_id(request.request_id)
    named = visible_jobs(control.published, caller, request.job_id)
    if len(named) == 1:
        version = request.expected_version
        only = Edit(
            caller=caller, request_id=request_id, job_id=named[0].job_id, expected_version=version
        )
        answer = await control.ask(make(only))
        return EditOutcome([_job(answer)], False, [], _changes(answer))
    if request.expected_version:
        raise InvalidRequest("a version is that of one job", field="expected_version")
    meant = [job for job in named if not job.ended] or named
    # Keys of their own, that a repeat of the request makes again.
    edits = [
        Edit(
            caller=caller,
            request_id=f"{request_id}#{job.job_id}",
            job_id=job.job_id,
            expected_version=0,
        )
        for job in meant
    ]
    answers = await asyncio.gather(
        *(control.ask(make(edit)) for edit in edits), return_exceptions=True
    )
    return _gathered(control, named, dict(zip((job.job_id for job in meant), answers, strict=True)))


def _gathered(control: Control, named: list[Job], answers: dict[JobId, object]) -> EditOutcome:
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
        _job(answer) if isinstance(answer, Job | UpdatedJob) else _published(control, job)
        for job, answer in zip(named, after, strict=True)
    ]
    changes = [change for answer in answers.values() for change in _changes(answer)]
    return EditOutcome(jobs, True, refusals, changes)


def _raise_losses(failures: list[BaseException]) -> None:
    """The loss of all of them, in one refusal."""
    losses = [each for each in failures if isinstance(each, WorkWouldBeLost)]
    if losses and len(losses) == len(failures):
        told = "; ".join(each.what for each in losses[:MOST_TOLD])
        more = f"; and {len(losses) - MOST_TOLD} more tasks" if len(losses) > MOST_TOLD else ""
        raise WorkWouldBeLost(told + more, hint=losses[0].hint)


def _published(control: Control, job: Job) -> Job:
    return control.published.job(job.job_id) or job


def _job(answer: object) -> Job:
    if isinstance(answer, UpdatedJob):
        return answer.job
    assert isinstance(answer, Job)
    return answer


def _changes(answer: object) -> list[wire.FieldChange]:
    if not isinstance(answer, UpdatedJob):
        return []
    job_id = str(answer.job.job_id)
    return [
        wire.FieldChange(job_id=job_id, field=field, before=before, after=after)
        for field, before, after in answer.changes
    ]
