"""A change to one job or to many jobs; of many, some hundreds go to the loop in one turn."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol, TypedDict

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_pb2 import HookNote
from dlq.v1.job_pb2 import Job as JobMessage
from dlq_common.errors import DlqError, InvalidRequest, WorkWouldBeLost
from dlq_master.control.stimuli import EditMany, JobEdit, UpdatedJob, UpdateJob
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.job import Job
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.calls.reads import ENCODED
from dlq_master.rpc.jobs.visible import visible_jobs
from dlq_master.rpc.specs.intake import Edit
from dlq_master.rpc.specs.spec import check_request_id
from dlq_master.rpc.views.job_view import job_message

IN_ONE_TURN: Final = 200  # edits of one request: a turn stays well below a tenth of a second
MOST_TOLD = 8  # tasks that a refusal of all tells; a status holds no more text


class EditRequest(Protocol):
    """The fields of all requests that edit a job."""

    request_id: str
    job_id: str
    expected_version: int


class Changed(TypedDict):
    """The fields of all answers to edits."""

    job: JobMessage
    jobs: list[JobMessage]
    refusals: list[wire.Refusal]


class EditOutcome(NamedTuple):
    """The named jobs after the change, and the refusals of those that did not change."""

    jobs: list[Job]
    several: bool
    refusals: list[wire.Refusal]
    changes: list[wire.FieldChange]
    notes: list[HookNote]


async def changed(
    call: Call,
    request: EditRequest,
    make: Callable[[Edit], JobEdit],
    *,
    only_first: bool = False,
) -> Changed:
    """Change the named jobs, and return them as they are then. `only_first`: return only the first
    of them.
    """
    outcome = await edit_each(call, request, make)
    if only_first:
        outcome = outcome._replace(jobs=outcome.jobs[:1], several=False)
    return await told(call, outcome)


async def told(call: Call, outcome: EditOutcome) -> Changed:
    """The jobs of an edit as their owner sees them."""
    messages = await job_messages(call, outcome.jobs)
    several = messages if outcome.several else []
    return {"job": messages[0], "jobs": several, "refusals": outcome.refusals}


async def job_messages(call: Call, jobs: Iterable[Job]) -> list[JobMessage]:
    """Jobs as messages, made in slices."""
    breathe, messages = call.breathe(), []
    for job in jobs:
        messages.append(job_message(job, call.read, call.now_s))
        await breathe(ENCODED)
    return messages


async def edit_each(
    call: Call,
    request: EditRequest,
    make: Callable[[Edit], JobEdit],
    *,
    ask: Callable[[JobEdit], Awaitable[Any]] | None = None,
    cost: Callable[[], int] = int,
) -> EditOutcome:
    """Change the named jobs.

    Of several jobs, ended ones are left alone, unless all have ended. If all others refuse, the
    first refusal is raised. `ask`: another way to the loop. `cost`: of what `make` has read since
    the last call, counted in jobs looked at.
    """
    ask = ask or call.ask
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
        answer = await ask(edit_of(named[0], request_id))
        return EditOutcome([_job(answer)], False, [], _changes(answer), _notes([answer]))
    if request.expected_version:
        raise InvalidRequest("a version is that of one job", field="expected_version")
    living = any(not job.ended for job in named)
    jobs = {job.job_id: job for job in named}
    answers = await ask_each(
        call,
        request_id,
        list(jobs),
        lambda one: edit_of(jobs[one], ""),
        living=living,
        ask=ask,
        cost=cost,
    )
    return _gathered(call, named, answers)


async def ask_each(
    call: Call,
    request_id: str,
    job_ids: Sequence[JobId],
    make: Callable[[JobId], JobEdit],
    *,
    living: bool,
    ask: Callable[[JobEdit], Awaitable[Any]] | None = None,
    cost: Callable[[], int] = int,
) -> dict[JobId, object]:
    """The answer or the refusal of each edit, by job.

    `living`: ended jobs are left alone, and are not in the result. Each part of the request has its
    own key, which a repeat of the request makes again. The edits of a part are made just before it
    is asked, because each may hold a spec.
    """
    answers: dict[JobId, object] = {}
    breathe = call.breathe()
    for first in range(0, len(job_ids), IN_ONE_TURN):
        part: list[JobEdit] = []
        for job_id in job_ids[first : first + IN_ONE_TURN]:
            try:
                part.append(make(job_id))
            except DlqError as refusal:
                if not first:  # nothing has changed yet
                    raise
                answers[job_id] = refusal
            await breathe(ENCODED + cost())
        if not part:
            continue
        if isinstance(part[0], UpdateJob):  # its repeats are told what was changed
            apart = _apart(call, request_id, part, ask or call.ask, living=living)
            answers.update(await apart)
            continue
        many = EditMany(
            caller=call.caller,
            request_id=f"{request_id}#{first}",
            edits=tuple(part),
            living_only=living,
        )
        done = await call.ask(many)
        answers.update(done.answers)
        answers.update(done.refusals)
    return answers


async def _apart(
    call: Call,
    request_id: str,
    edits: Sequence[JobEdit],
    ask: Callable[[JobEdit], Awaitable[Any]],
    *,
    living: bool,
) -> dict[JobId, object]:
    """Edits that each need an answer of their own: a repeat is told what it has changed."""
    known = [(edit, call.read.job(edit.job_id)) for edit in edits]
    meant = [edit for edit, job in known if job is None or not (living and job.ended)]
    asked = [replace(edit, request_id=f"{request_id}#{edit.job_id}") for edit in meant]
    answers = await asyncio.gather(*map(ask, asked), return_exceptions=True)
    return dict(zip((edit.job_id for edit in meant), answers, strict=True))


def _gathered(call: Call, named: list[Job], answers: dict[JobId, object]) -> EditOutcome:
    """The outcome for several jobs. Raises the first failure if all have failed."""
    failures = {key: each for key, each in answers.items() if isinstance(each, BaseException)}
    if len(failures) == len(answers):
        _raise_losses(list(failures.values()))
    for failure in failures.values():
        if not isinstance(failure, DlqError) or len(failures) == len(answers):
            raise failure
    refusals = refusals_of(failures)
    after = (answers.get(job.job_id) for job in named)
    jobs = [
        _job(answer) if isinstance(answer, Job | UpdatedJob) else call.read.job(job.job_id) or job
        for job, answer in zip(named, after, strict=True)
    ]
    changes = [change for answer in answers.values() for change in _changes(answer)]
    return EditOutcome(jobs, True, refusals, changes, _notes(answers.values()))


def refusals_of(failures: Mapping[JobId, object]) -> list[wire.Refusal]:
    """The refusals among these as messages."""
    return [
        wire.Refusal(job_id=str(job_id), reason=failure.reason, detail=failure.what)
        for job_id, failure in failures.items()
        if isinstance(failure, DlqError)
    ]


def _raise_losses(failures: list[BaseException]) -> None:
    """Raise the losses of all jobs as one refusal, if all refusals are such losses."""
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


def _notes(answers: Iterable[object]) -> list[HookNote]:
    """The notes of hooks, each once: many tasks have the same ones."""
    updated = [answer for answer in answers if isinstance(answer, UpdatedJob)]
    notes = dict.fromkeys(note for answer in updated for note in answer.notes)
    return [HookNote(**note._asdict()) for note in notes]
