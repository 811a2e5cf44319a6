"""A submission as the operator's hook sees it, and the job after the hook's changes.

A hook is trusted no more than a user. Only fields of CHANGES in its answer count. The changed job
passes every check again, as if its user had typed it. The digest stays that of the user's spec, so
that a repeat is recognised, and gets the first answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dlq.v1 import admin_service_pb2 as admin
from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_pb2 import HookNote, JobSpec
from dlq_common.errors import DlqError, InvalidRequest, PermissionDenied
from dlq_common.text.hook_words import hook_words
from dlq_common.text.names import shown
from dlq_common.text.suggest import did_you_mean
from dlq_common.text.wire import to_duration
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli import SubmitJob
from dlq_master.hooks.desk import FAILED, HOOKS, OK, ON_SUBMIT, REFUSED, HookDesk
from dlq_master.hooks.process import HookFailed, HookFile
from dlq_master.hooks.trying import TriedAttempt, tried_attempts
from dlq_master.model.ids import JobId
from dlq_master.model.jobs.naming import shown_id
from dlq_master.rpc.specs.hook_answers import (
    changed_field,
    note_line,
    read_answer,
    refuse_failed,
    told_job,
)
from dlq_master.rpc.specs.hooked_update import HookedUpdates, MakeUpdate, UpdateLine
from dlq_master.rpc.specs.intake import job_id_of, job_stimulus

MOST_LINES: Final = 100


class SubmitHooks:
    """The operator's hook for submissions, as the services of jobs call it."""

    def __init__(self, desk: HookDesk) -> None:
        self.desk = desk

    async def seen(self, asked: JobSpec, ask: SubmitJob, count: int = 1) -> SubmitJob:
        """The submission after the hook. A repeat passes unchanged, since it gets the first answer.

        `count`: the jobs of a member of a group. PermissionDenied: the hook refuses it. TryAgain or
        IllegalTransition: the hook failed, and failures refuse by the configuration.
        """
        desk, caller = self.desk, ask.caller
        policy = desk.policy(ON_SUBMIT)
        if not policy or (ask.request_id and desk.knows(caller.key, ask.request_id)):
            return ask
        key: tuple[str, ...] = ()
        if ask.request_id and not ask.validate_only:  # the answer to a dry run holds for no job
            key = (caller.key, ask.request_id, ask.digest, str(count))
        try:
            answer = await desk.call(ON_SUBMIT, _told(desk, ask, count), key)
            refused = answer.get("refused")
            if not refused:
                return _after(asked, ask, answer)
        except HookFailed as failed:
            refuse_failed(failed, policy, "this job", "nothing was submitted")
            told = f"hook {ON_SUBMIT} failed: {failed.words}; the job was accepted as it was sent"
            return _noted(ask, ask.spec, [HookNote(hook=ON_SUBMIT, text=note_line(told))])
        raise PermissionDenied(
            f"hook {ON_SUBMIT} refuses this job: {note_line(refused)}",
            hint="change the job, or ask an operator of this cluster",
            user=caller.name,
            hook=ON_SUBMIT,
        )

    async def seen_or_refused(
        self, asked: JobSpec, ask: SubmitJob | DlqError
    ) -> SubmitJob | DlqError:
        """The same for one of many, which is refused by itself."""
        if isinstance(ask, DlqError):
            return ask
        try:
            return await self.seen(asked, ask)
        except DlqError as refusal:
            return refusal

    def updates(
        self, line: UpdateLine, asked: wire.UpdateJobRequest, make: MakeUpdate
    ) -> HookedUpdates | None:
        """The same for the jobs of one UpdateJob call; None: this hook is not called."""
        policy = self.desk.policy(ON_SUBMIT)
        return HookedUpdates(self.desk, line, asked, make) if policy else None

    def facts(self) -> admin.HooksFacts:
        """The facts about the hook for operators."""
        desk, process = self.desk, self.desk.process
        return admin.HooksFacts(
            file=process.file.name,
            digest=hashlib.sha256(process.file.source.encode()).hexdigest(),
            walls=process.facts.get("walls", ()),
            running=process.running,
            start_count=process.starts,
            last_failure=note_line(process.last_failure),
            rest_duration=to_duration(process.rest_s) if process.rest_s else None,
            waiting_count=desk.waiting,
            hooks=[_facts_of(desk, hook) for hook in HOOKS if desk.policy(hook)],
        )

    def named(self, word: str) -> tuple[str, bool]:
        """The hook with this name, "" for on_submit, and whether it is a hook of attempts."""
        hook = word or ON_SUBMIT
        if hook not in HOOKS:
            known = did_you_mean(hook, HOOKS) or f"; there are {', '.join(HOOKS)}"
            raise InvalidRequest(f"there is no hook {shown(hook)}{known}", field="hook")
        return hook, hook != ON_SUBMIT

    async def trials(
        self, file: tuple[str, str], tried: Sequence[tuple[str, JobSpec, SubmitJob]]
    ) -> Sequence[admin.HookTrial]:
        """The effect of this file, a name and its text, on these jobs, each with its id or "".

        ConfigError: it cannot be loaded.
        """
        answers = await self.desk.trial(
            HookFile(*file), ON_SUBMIT, [_told(self.desk, ask) for _, _, ask in tried]
        )
        return [_trial(*one, answer) for one, answer in zip(tried, answers, strict=True)]

    async def attempt_trials(
        self, file: tuple[str, str], read: Published, hook: str, count: int
    ) -> Sequence[admin.HookTrial]:
        """The same for on_start or on_end, with the newest starts or ends in the journal."""
        tried = await tried_attempts(self.desk, read, HookFile(*file), hook, count)
        return [_attempt_trial(one) for one in tried]

    def notes_of(self, spec: bytes) -> Sequence[HookNote]:
        """The changes and warnings of hooks in this spec."""
        return JobSpec.FromString(spec).hook_notes

    def notes_of_job(self, read: Published, job_id: str) -> Sequence[HookNote]:
        """The same for a job or an array by its id; "": there is none."""
        if not job_id:
            return ()
        number = job_id_of(job_id)
        if read.job(number) is None:  # of an array, whose first task follows it
            number = JobId(number + 1)
        return self.notes_of(read.spec(number))


# --- for operators --------------------------------------------------------------------------------


def _facts_of(desk: HookDesk, hook: str) -> admin.HookFacts:
    return admin.HookFacts(
        hook=hook,
        policy=desk.policy(hook),
        ok_count=desk.calls[hook, OK],
        refused_count=desk.calls[hook, REFUSED],
        failed_count=desk.calls[hook, FAILED],
        spent_duration=to_duration(float(desk.seconds[hook])),
    )


def _trial(
    job_id: str, asked: JobSpec, ask: SubmitJob, answer: Mapping[str, Any] | HookFailed
) -> admin.HookTrial:
    told = admin.HookTrial(job_id=job_id, name=ask.name)
    if isinstance(answer, HookFailed):
        told.failure, told.printed = note_line(answer.words), printed_lines(answer.said)
        return told
    told.printed = printed_lines(answer.get("said", ""))
    if answer.get("refused"):
        told.refusal = note_line(answer["refused"])
        return told
    try:
        told.notes.extend(JobSpec.FromString(_after(asked, ask, answer).spec).hook_notes)
    except HookFailed as failed:
        told.failure = note_line(failed.words)
    return told


def _attempt_trial(one: TriedAttempt) -> admin.HookTrial:
    told, result = one.told, one.result
    return admin.HookTrial(
        job_id=shown_id(told.job),
        attempt=told.key.number,
        name=told.job.name,
        notes=[HookNote(hook=result.hook, text=note) for note in result.notes],
        hold=result.hold,
        failure=result.failed,
        printed=printed_lines(one.said),
    )


def printed_lines(text: object) -> str:
    return "\n".join(note_line(line) for line in str(text).splitlines()[:MOST_LINES])


# --- helpers, in order of use ---------------------------------------------------------------------


def _told(desk: HookDesk, ask: SubmitJob, count: int = 1) -> Mapping[str, Any]:
    spec = JobSpec.FromString(ask.spec)
    return {
        "job": told_job(spec, count if ask.array is None else len(ask.array.indexes)),
        "user": {"name": ask.caller.name, "role": ask.caller.role},
        "context": {
            "cluster": desk.cluster,
            "time_s": desk.clock.now_s(),
            "queues": desk.queues,
            "dry_run": ask.validate_only,
        },
    }


def _after(asked: JobSpec, ask: SubmitJob, answer: Mapping[str, Any]) -> SubmitJob:
    """The job with the hook's changes, checked like any other."""
    changed, warnings = read_answer(answer)
    spec = JobSpec()
    spec.CopyFrom(asked)
    notes = [note for name in changed for note in changed_field(spec, name, changed[name])]
    notes += [HookNote(hook=ON_SUBMIT, text=note_line(words)) for words in warnings]
    if not notes:
        return ask
    own = {"brief": ask.brief, "validate_only": ask.validate_only}
    try:
        made = job_stimulus(spec, ask.caller, ask.request_id, **own)
    except InvalidRequest as error:
        raise HookFailed(f"it made a job that is refused: {error.what}") from None
    return _noted(replace(made, digest=ask.digest), made.spec, notes)


def _noted(ask: SubmitJob, spec: bytes, notes: Sequence[HookNote]) -> SubmitJob:
    kept = JobSpec.FromString(spec)
    kept.hook_notes.extend(notes)
    words = "; ".join(map(hook_words, notes))
    return replace(ask, spec=kept.SerializeToString(deterministic=True), hooked=words)
