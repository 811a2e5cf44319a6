"""`dlq update` as the operator's hook for submissions sees it: the job as it would be afterwards.

Without this a user could undo the hook's changes. The hook is called before the loop, so its answer
is for the version of the job that it has seen. If the job has changed since, the hook is called
again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from dlq.v1 import job_service_pb2 as wire
from dlq.v1.job_pb2 import HookNote, JobSpec
from dlq_common.errors import Conflict, DlqError, InvalidRequest, PermissionDenied
from dlq_common.text.hook_words import hook_words
from dlq_common.text.wire import to_duration
from dlq_master.control.loop.turn import digest
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli import SAME, HookedUpdate, JobEdit, UpdateJob, UpdateNote
from dlq_master.hooks.desk import ON_SUBMIT, HookDesk
from dlq_master.hooks.process import HookFailed
from dlq_master.model.jobs.job import Job
from dlq_master.rpc.specs.hook_answers import (
    CHANGES,
    changed_field,
    note_line,
    read_answer,
    refuse_failed,
    told_job,
)
from dlq_master.rpc.specs.intake import Edit

TRIES: Final = 4
# The fields of a hook that an update can carry: the others are settled with the submission.
CARRIED: Final = ("queue", "time_limit_s", "labels", "nice")
_NAMES: Final = {"time_limit_duration": "time_limit_s", "clear_time_limit": "time_limit_s"}
_NO_WISHES: Final = frozenset({"request_id", "job_id", "expected_version", "validate_only"})


class UpdateLine(Protocol):
    """The last commit, and the way to the loop."""

    @property
    def read(self) -> Published: ...

    async def ask(self, stimulus: JobEdit) -> Any: ...


class MakeUpdate(Protocol):
    """The update of one job by a request, with every check."""

    def __call__(self, edit: Edit, asked: wire.UpdateJobRequest) -> UpdateJob: ...


class HookedUpdates:
    """The updates of one call, with the hook before each. Equal tasks share one call of
    the hook.
    """

    def __init__(
        self, desk: HookDesk, line: UpdateLine, asked: wire.UpdateJobRequest, make: MakeUpdate
    ) -> None:
        self._desk, self._line, self._asked, self._make = desk, line, asked, make
        self._one = asyncio.Lock()  # an array takes one place of those that wait
        self._now_s = desk.clock.now_s()
        self._known: dict[str, Mapping[str, Any]] = {}
        self.words: dict[str, None] = {}  # for the audit, each once

    async def ask(self, edit: JobEdit) -> Any:
        """The loop's answer to an update, as the hook has changed it."""
        assert isinstance(edit, UpdateJob)
        for left in reversed(range(TRIES)):
            job = self._line.read.job(edit.job_id)
            if job is None or job.ended or self._is_repeat(edit):
                break
            async with self._one:
                seen = await self._seen(edit, job)
            hooked = seen.hooked
            words = "" if hooked is None else hooked.words
            if words:
                self.words[words] = None
            try:
                return await self._line.ask(seen)
            except Conflict:
                if edit.expected_version or not left:
                    raise
                edit = self._made(edit, self._asked)  # from its spec as it is now
            except DlqError as refusal:
                if words:  # the hook's change may be the reason of the refusal
                    refusal.hint = f"{refusal.hint}\n{words}".strip()
                raise
        return await self._line.ask(edit)

    # --- helpers, in order of use -----------------------------------------------------------------

    def _is_repeat(self, edit: UpdateJob) -> bool:
        return bool(edit.request_id) and self._desk.knows(edit.caller.key, edit.request_id)

    def _made(self, edit: UpdateJob, asked: wire.UpdateJobRequest) -> UpdateJob:
        return self._make(
            Edit(
                caller=edit.caller,
                request_id=edit.request_id,
                job_id=edit.job_id,
                expected_version=edit.expected_version,
            ),
            asked,
        )

    async def _seen(self, edit: UpdateJob, job: Job) -> UpdateJob:
        """The update after the hook. PermissionDenied: the hook refuses it."""
        spec = _spec_after(job, self._line.read.spec(job.spec_id), edit)
        try:
            answer = await self._answer(edit, job, spec)
            if not answer.get("refused"):
                return self._after(edit, job, spec, answer)
        except HookFailed as failed:
            refuse_failed(failed, self._desk.policy(ON_SUBMIT), "this update", "nothing changed")
            told = f"hook {ON_SUBMIT} failed: {failed.words}; the update was made as it was sent"
            return _hooked(edit, edit, job, [HookNote(hook=ON_SUBMIT, text=note_line(told))])
        raise PermissionDenied(
            f"hook {ON_SUBMIT} refuses this update: {note_line(answer['refused'])}",
            hint="ask for something else, or ask an operator of this cluster",
            user=edit.caller.name,
            hook=ON_SUBMIT,
        )

    async def _answer(self, edit: UpdateJob, job: Job, spec: JobSpec) -> Mapping[str, Any]:
        told = self._told(edit, job, spec)
        known = json.dumps(told, sort_keys=True)
        if known not in self._known:
            self._known[known] = await self._desk.call(ON_SUBMIT, told)
        return self._known[known]

    def _told(self, edit: UpdateJob, job: Job, spec: JobSpec) -> Mapping[str, Any]:
        desk, caller = self._desk, edit.caller
        deadlines = len(job.steps) if edit.deadlines is SAME else len(edit.deadlines)
        return {
            "job": {**told_job(spec, 1), "deadlines": deadlines},
            "user": {"name": caller.name, "role": caller.role},
            "context": {
                "cluster": desk.cluster,
                "time_s": self._now_s,
                "queues": desk.queues,
                "dry_run": edit.validate_only,
                "update": True,
                "changed": sorted(_wishes(self._asked)),
                "owner": job.user,
                "running": job.live_key is not None,
            },
        }

    def _after(
        self, edit: UpdateJob, job: Job, spec: JobSpec, answer: Mapping[str, Any]
    ) -> UpdateJob:
        """The update with the hook's changes, checked like any other."""
        changed, warnings = read_answer(answer)
        notes: list[HookNote] = []
        for name, value in changed.items():
            if name in CHANGES and name not in CARRIED:
                raise PermissionDenied(
                    f"hook {ON_SUBMIT} sets {note_line(name)} in such a job, which no update can",
                    hint="submit the job anew, or ask an operator of this cluster",
                    user=edit.caller.name,
                    hook=ON_SUBMIT,
                )
            notes += changed_field(spec, name, value)
        asked = self._asked if not notes else _with_changes(self._asked, job, spec, changed)
        notes += [HookNote(hook=ON_SUBMIT, text=note_line(words)) for words in warnings]
        try:
            made = self._made(edit, asked)
        except InvalidRequest as error:
            raise HookFailed(f"it made a job that is refused: {error.what}") from None
        return _hooked(edit, made, job, notes)


def _hooked(edit: UpdateJob, made: UpdateJob, job: Job, notes: Sequence[HookNote]) -> UpdateJob:
    """The update as it was `made`, with the digest of the user's request."""
    hooked = HookedUpdate(
        digest=digest(edit),
        seen_version=job.version,
        notes=tuple([UpdateNote(it.hook, it.field, it.before, it.after, it.text) for it in notes]),
        words="; ".join(map(hook_words, notes)),
    )
    return replace(made, request_id=edit.request_id, hooked=hooked)


def _spec_after(job: Job, stored: bytes, edit: UpdateJob) -> JobSpec:
    """The spec of a job after the update. Its row has the changes of earlier updates."""
    spec = JobSpec.FromString(stored if edit.respec is None else edit.respec.spec)
    spec.name = job.name if edit.name is SAME else edit.name
    spec.queue = job.queue if edit.queue is SAME else edit.queue
    spec.nice = job.nice if edit.nice is SAME else edit.nice
    spec.team = job.team if edit.team is SAME else edit.team
    limit_s = job.time_limit_s if edit.time_limit_s is SAME else edit.time_limit_s
    spec.ClearField("time_limit_duration")
    if limit_s is not None:
        spec.time_limit_duration.CopyFrom(to_duration(limit_s))
    return spec


def _wishes(asked: wire.UpdateJobRequest) -> Iterator[str]:
    """The fields of a request that `SubmittedSpec` has, by its names."""
    for descriptor, value in asked.ListFields():
        if descriptor.name == "spec_change":
            yield from (part.name for part, _ in value.ListFields())
        elif descriptor.name not in _NO_WISHES:
            yield _NAMES.get(descriptor.name, descriptor.name.removeprefix("clear_"))


def _with_changes(
    asked: wire.UpdateJobRequest, job: Job, spec: JobSpec, changed: Iterable[str]
) -> wire.UpdateJobRequest:
    """The request with these fields as the spec has them now."""
    made = wire.UpdateJobRequest()
    made.CopyFrom(asked)
    if "queue" in changed:
        made.queue = spec.queue
    if "nice" in changed:
        made.nice = spec.nice
    if "time_limit_s" in changed:
        made.clear_time_limit = False
        made.time_limit_duration.CopyFrom(spec.time_limit_duration)
    if "labels" in changed:
        made.spec_change.labels.clear()
        made.spec_change.labels.update(spec.labels)
    return made
