"""SubmitJobs: many jobs in one call and few turns, or a group in one turn."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Final

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_pb2 import JobSpec
from dlq_common.errors import DlqError, InvalidRequest
from dlq_common.text.arrays import count_of
from dlq_common.text.names import check_word, shown
from dlq_master.control.jobs.groups import check_size, of_member
from dlq_master.control.stimuli import (
    AskedMember,
    SubmitGroup,
    SubmitJob,
    SubmitMany,
    WithdrawSubmission,
)
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.eligible import MemberEnds
from dlq_master.rpc.calls.call import Call
from dlq_master.rpc.calls.reads import LOOKED_AT
from dlq_master.rpc.specs.intake import job_stimulus
from dlq_master.rpc.specs.node_choice import passing
from dlq_master.rpc.specs.ordering import MOST_TASKS, ranges_of
from dlq_master.rpc.specs.spec import check_request_id

if TYPE_CHECKING:
    from dlq_master.rpc.specs.hooked import SubmitHooks

MOST_AT_ONCE: Final = 1_000
IN_A_TURN: Final = 250
"""Submits of one call that come in one turn: those of others come in between."""


async def submit_jobs(call: Call, request: wire.SubmitJobsRequest) -> wire.SubmitJobsResponse:
    """Submit each spec by itself, in their order.

    Each has a key of its own, which a repeat of the request makes again.
    """
    request_id = check_request_id(request.request_id)
    if request.members:
        return await _submit_group(call, request)
    if request.validate_only:
        raise InvalidRequest("only the members of a group are checked so", field="validate_only")
    if not 0 < len(request.specs) <= MOST_AT_ONCE:
        raise InvalidRequest(f"a call takes 1 to {MOST_AT_ONCE} jobs", field="specs")
    response = wire.SubmitJobsResponse()
    specs = enumerate(request.specs)
    while some := [(f"{request_id}#{number}", spec) for number, spec in islice(specs, IN_A_TURN)]:
        response.jobs.extend(await _submit(call, some))
    return response


async def withdraw_submission(
    call: Call, request: wire.WithdrawSubmissionRequest
) -> wire.WithdrawSubmissionResponse:
    job_id = await call.ask(WithdrawSubmission(**call.signed(request)))
    return wire.WithdrawSubmissionResponse(job_id="" if job_id is None else str(job_id))


async def _submit(call: Call, specs: Sequence[tuple[str, JobSpec]]) -> list[wire.SubmittedJob]:
    """The answers to specs that have their keys."""
    asks, breathe = [], call.breathe()
    for key, spec in specs:
        asks.append(_asked(call, key, spec))
        await breathe(LOOKED_AT * (1 + _tasks_of(spec)))
    if call.parts.hooks is not None:
        return await _submit_by_hooks(call, call.parts.hooks, specs, asks)
    return await _submit_asks(call, specs, asks)


async def _submit_by_hooks(
    call: Call,
    hooks: SubmitHooks,
    specs: Sequence[tuple[str, JobSpec]],
    asks: Sequence[SubmitJob | DlqError],
) -> list[wire.SubmittedJob]:
    """The same after the operator's hook, which sees one spec after another. Few
    masters have one.
    """
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


def _tasks_of(spec: JobSpec) -> int:
    """The number of an array's tasks, MOST_TASKS at most."""
    ranges = ranges_of(spec)
    with suppress(ValueError):
        return min(count_of(ranges), MOST_TASKS)
    return len(ranges)


def _asked(call: Call, key: str, spec: JobSpec) -> SubmitJob | DlqError:
    try:
        return job_stimulus(spec, call.caller, key, brief=True)
    except DlqError as error:
        return error


def _told(answer: JobId | DlqError) -> wire.SubmittedJob:
    if isinstance(answer, DlqError):
        return wire.SubmittedJob(refusal=wire.Refusal(reason=answer.reason, detail=answer.what))
    return wire.SubmittedJob(job_id=str(answer))


async def _submit_group(call: Call, request: wire.SubmitJobsRequest) -> wire.SubmitJobsResponse:
    """All members of a group, or the refusal of the first that cannot be accepted."""
    if len(request.specs) != len(request.members):
        what = f"{len(request.members)} members, and {len(request.specs)} specs"
        raise InvalidRequest(f"each member has a spec: these are {what}", field="members")
    check_size(sum(max(1, member.job_count) for member in request.members))
    pairs = zip(request.members, request.specs, strict=True)
    members = tuple([await _member(call, member, spec, request) for member, spec in pairs])
    call.hook = "; ".join(filter(None, (member.ask.hooked for member in members)))
    told = "\n".join(f"{it.name} {it.jobs} {it.ends} {it.ask.digest}" for it in members)
    ask = SubmitGroup(
        caller=call.caller,
        request_id=request.request_id,
        digest=hashlib.sha256(told.encode()).hexdigest()[:32],
        members=members,
        validate_only=request.validate_only,
    )
    found = await call.ask(ask)
    if request.validate_only:
        jobs = [wire.SubmittedJob() for _ in found.jobs]
    else:
        jobs = [wire.SubmittedJob(job_id=str(job.job_id)) for job in found.jobs]
    if call.parts.hooks is not None:
        _tell_notes(call, call.parts.hooks, members, jobs)
    group_id = "" if request.validate_only else str(found.group_id)
    return wire.SubmitJobsResponse(jobs=jobs, group_id=group_id)


def _tell_notes(
    call: Call, hooks: SubmitHooks, members: Sequence[AskedMember], jobs: list[wire.SubmittedJob]
) -> None:
    """Add the notes of hooks to the first job of each member.

    A repeat gets the first answer, so they come from the stored jobs.
    """
    at = 0
    for member in members:
        one = jobs[at]
        stored = call.read.spec(JobId(int(one.job_id))) if one.job_id else member.ask.spec
        one.hook_notes.extend(hooks.notes_of(stored))
        at += member.jobs


async def _member(
    call: Call, asked: wire.GroupMember, spec: JobSpec, request: wire.SubmitJobsRequest
) -> AskedMember:
    """A member as it was requested and as the operator's hook has changed it."""
    name = passing(check_word, asked.name, "members.name", "member")
    with of_member(name):
        if asked.job_count < 0:
            raise InvalidRequest(f"{asked.job_count} jobs are too few", field="spec.count")
        try:
            ends = MemberEnds(asked.ends or MemberEnds.EACH)
        except ValueError:
            words = ", ".join(MemberEnds)
            what = f"ends is one of {words}, not {shown(asked.ends)}"
            raise InvalidRequest(what, field="spec.ends") from None
        ask = job_stimulus(
            spec,
            call.caller,
            request.request_id,
            brief=True,
            validate_only=request.validate_only,
        )
        count = max(1, asked.job_count)
        if call.parts.hooks is not None:
            ask = await call.parts.hooks.seen(spec, ask, count)
        return AskedMember(name, count, ends, ask)
