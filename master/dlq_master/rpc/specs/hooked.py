"""A submission as the operator's hook sees it, and the job that comes of it.

A hook is trusted no more than a user. Of its answer only fields of CHANGES count. The changed job
passes every check again, as if its user had typed it. The digest stays that of what
the user sent: a repeat is known by it, and gets the first answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dlq.v1 import admin_service_pb2 as admin
from dlq.v1.job_pb2 import HookNote, JobSpec
from dlq_common.errors import (
    DlqError,
    IllegalTransition,
    InvalidRequest,
    PermissionDenied,
    TryAgain,
)
from dlq_common.text.hook_words import hook_words
from dlq_common.text.names import printable
from dlq_common.text.units import format_span
from dlq_common.text.wire import from_duration, said, to_duration
from dlq_master.control.config import OPEN
from dlq_master.control.read_model.published import Published
from dlq_master.control.stimuli import SubmitJob
from dlq_master.hooks.desk import FAILED, HOOKS, OK, ON_SUBMIT, REFUSED, HookDesk
from dlq_master.hooks.process import HookFailed, HookFile
from dlq_master.model.ids import JobId
from dlq_master.rpc.specs.cores import is_without_gpus
from dlq_master.rpc.specs.intake import job_id_of, job_stimulus

LONGEST_NOTE: Final = 200
MOST_LINES: Final = 100


class SubmitHooks:
    """The operator's hook for submissions, as the services of jobs ask it."""

    def __init__(self, desk: HookDesk) -> None:
        self.desk = desk

    async def seen(self, asked: JobSpec, ask: SubmitJob, count: int = 1) -> SubmitJob:
        """The submission after the hook. A repeat passes as it is: it is answered like the first.
        `count`: the jobs of a member of a group.

        PermissionDenied: the hook refuses it. TryAgain or IllegalTransition: the hook failed, and
        the configuration refuses then.
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
            if policy != OPEN:
                raise _closed(failed) from None
            told = f"hook {ON_SUBMIT} failed: {failed.words}; the job was accepted as it was sent"
            return _noted(ask, ask.spec, [HookNote(hook=ON_SUBMIT, text=_line(told))])
        raise PermissionDenied(
            f"hook {ON_SUBMIT} refuses this job: {_line(refused)}",
            hint="change the job, or ask an operator of this cluster",
            user=caller.name,
            hook=ON_SUBMIT,
        )

    async def seen_or_refused(
        self, asked: JobSpec, ask: SubmitJob | DlqError
    ) -> SubmitJob | DlqError:
        """The same for one of many, of which each is refused by itself."""
        if isinstance(ask, DlqError):
            return ask
        try:
            return await self.seen(asked, ask)
        except DlqError as refusal:
            return refusal

    def facts(self) -> admin.HooksFacts:
        """For operators."""
        desk, process = self.desk, self.desk.process
        return admin.HooksFacts(
            file=process.file.name,
            digest=hashlib.sha256(process.file.source.encode()).hexdigest(),
            walls=process.facts.get("walls", ()),
            running=process.running,
            start_count=process.starts,
            last_failure=_line(process.last_failure),
            rest_duration=to_duration(process.rest_s) if process.rest_s else None,
            waiting_count=desk.waiting,
            hooks=[_facts_of(desk, hook) for hook in HOOKS if desk.policy(hook)],
        )

    async def trials(
        self, file: tuple[str, str], tried: Sequence[tuple[str, JobSpec, SubmitJob]]
    ) -> Sequence[admin.HookTrial]:
        """The effect of this file, a name and its text, on these jobs, each with its number or "".
        ConfigError: it cannot be loaded.
        """
        answers = await self.desk.trial(
            HookFile(*file), [_told(self.desk, ask) for _, _, ask in tried]
        )
        return [_trial(*one, answer) for one, answer in zip(tried, answers, strict=True)]

    def notes_of(self, spec: bytes) -> Sequence[HookNote]:
        """The changes and warnings of hooks in this spec."""
        return JobSpec.FromString(spec).hook_notes

    def notes_of_job(self, read: Published, job_id: str) -> Sequence[HookNote]:
        """The same, of a job or an array by its number; "": there is none."""
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
        told.failure, told.printed = _line(answer.words), _lines(answer.said)
        return told
    told.printed = _lines(answer.get("said", ""))
    if answer.get("refused"):
        told.refusal = _line(answer["refused"])
        return told
    try:
        told.notes.extend(JobSpec.FromString(_after(asked, ask, answer).spec).hook_notes)
    except HookFailed as failed:
        told.failure = _line(failed.words)
    return told


def _lines(text: object) -> str:
    return "\n".join(_line(line) for line in str(text).splitlines()[:MOST_LINES])


# --- helpers, in order of use ---------------------------------------------------------------------


def _told(desk: HookDesk, ask: SubmitJob, count: int = 1) -> Mapping[str, Any]:
    spec = JobSpec.FromString(ask.spec)
    return {
        "job": _job_of(spec, count if ask.array is None else len(ask.array.indexes)),
        "user": {"name": ask.caller.name, "role": ask.caller.role},
        "context": {
            "cluster": desk.cluster,
            "time_s": desk.clock.now_s(),
            "queues": desk.queues,
            "dry_run": ask.validate_only,
        },
    }


def _job_of(spec: JobSpec, tasks: int) -> Mapping[str, Any]:
    """The fields of `dlq_hooks.values.SubmittedSpec`."""
    resources = spec.resources
    bare = is_without_gpus(resources)
    memory = resources.core_memory_bytes if bare else said(resources, "memory_limit_bytes")
    return {
        "name": spec.name,
        "command": list(spec.command),
        "script": spec.script,
        "working_directory": spec.working_directory,
        "queue": spec.queue,
        "team": spec.team,
        "gpus": 0 if bare else resources.gpu_count,
        "cores": resources.core_count if bare else 0,
        "nodes": said(resources, "node_count"),
        "gpu_type": resources.gpu_type,
        "memory_bytes": memory or None,
        "time_limit_s": said(spec, "time_limit_duration"),
        "run_estimate_s": said(spec, "run_estimate_duration"),
        "nice": spec.nice,
        "labels": dict(spec.labels),
        "environment": dict(spec.environment),
        "image": spec.container.image,
        "hold": spec.hold,
        "tasks": tasks,
        "deadlines": len(spec.deadlines),
        "interactive": spec.interactive.attended or bool(spec.interactive.stdin),
    }


def _after(asked: JobSpec, ask: SubmitJob, answer: Mapping[str, Any]) -> SubmitJob:
    """The job with the hook's changes, checked like any other."""
    changed, warnings = answer.get("changed", {}), answer.get("warnings", [])
    if not isinstance(changed, dict) or not isinstance(warnings, list):
        raise HookFailed("it answered what makes no sense")
    spec = JobSpec()
    spec.CopyFrom(asked)
    notes: list[HookNote] = []
    for name, value in changed.items():
        if name not in CHANGES:
            raise HookFailed(f"it changed {_line(name)}, which no hook may change")
        try:
            notes += _changes(spec, name, value)
        except (ValueError, TypeError):  # half a character, for example
            raise HookFailed(f"it set {_line(name)} to what no job can have") from None
    notes += [HookNote(hook=ON_SUBMIT, text=_line(words)) for words in warnings]
    if not notes:
        return ask
    own = {"brief": ask.brief, "validate_only": ask.validate_only}
    try:
        made = job_stimulus(spec, ask.caller, ask.request_id, **own)
    except InvalidRequest as error:
        raise HookFailed(f"it made a job that is refused: {error.what}") from None
    return _noted(replace(made, digest=ask.digest), made.spec, notes)


def _changes(spec: JobSpec, name: str, value: Any) -> Iterator[HookNote]:
    for what, before, after in CHANGES[name](spec, value):
        told = {"before": _line(before), "after": _line(after)}
        yield HookNote(hook=ON_SUBMIT, field=_line(what), **told)


def _noted(ask: SubmitJob, spec: bytes, notes: Sequence[HookNote]) -> SubmitJob:
    kept = JobSpec.FromString(spec)
    kept.hook_notes.extend(notes)
    words = "; ".join(map(hook_words, notes))
    return replace(ask, spec=kept.SerializeToString(deterministic=True), hooked=words)


def _closed(failed: HookFailed) -> DlqError:
    """The refusal of a job because its hook failed."""
    what = f"hook {ON_SUBMIT} failed, and without it no job is accepted: {failed.words}"
    if failed.again_s is None:
        hint = "nothing was submitted; tell an operator: the same job will fail again"
        return IllegalTransition(what, hint=hint, hook=ON_SUBMIT)
    wait_s = max(1, round(failed.again_s))
    hint = f"nothing was submitted; try again in {wait_s} s, and then tell an operator"
    return TryAgain(what, hint=hint, hook=ON_SUBMIT, retry_after_s=wait_s)


def _line(words: object) -> str:
    text = str(words).encode("utf-8", "replace").decode()
    return printable(text)[:LONGEST_NOTE]


# --- the fields that a hook may change ------------------------------------------------------------

Changed = tuple[str, str, str]


def _queue(spec: JobSpec, value: Any) -> Iterator[Changed]:
    before, spec.queue = spec.queue, _text(value, "queue")
    yield "queue", before or "the default", spec.queue or "the default"


def _time_limit(spec: JobSpec, value: Any) -> Iterator[Changed]:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e10:
        raise HookFailed("it set a time limit that is no number of seconds above 0")
    before_s = said(spec, "time_limit_duration")
    spec.time_limit_duration.CopyFrom(to_duration(float(value)))
    after_s = from_duration(spec.time_limit_duration)
    yield "time limit", "none" if before_s is None else format_span(before_s), format_span(after_s)


def _labels(spec: JobSpec, value: Any) -> Iterator[Changed]:
    before, after = dict(spec.labels), _texts(value, "labels")
    spec.labels.clear()
    spec.labels.update(after)
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            yield f"label {name}", before.get(name, "none"), after.get(name, "none")


def _environment(spec: JobSpec, value: Any) -> Iterator[Changed]:
    """Values may be secrets, and are not told."""
    before, after = dict(spec.environment), _texts(value, "environment")
    for name, old in before.items():
        if after.get(name) != old:
            told = f"it changed the variable {_line(name)} of the user; it may add variables"
            raise HookFailed(told)
    for name in sorted(after.keys() - before.keys()):
        spec.environment[name] = after[name]
        yield f"variable {name}", "unset", "set"


def _image(spec: JobSpec, value: Any) -> Iterator[Changed]:
    if not spec.HasField("container"):
        raise HookFailed("it set an image of a job without a container")
    before, spec.container.image = spec.container.image, _text(value, "image")
    yield "image", before, spec.container.image


def _nice(spec: JobSpec, value: Any) -> Iterator[Changed]:
    if isinstance(value, bool) or not isinstance(value, int) or not spec.nice < value <= 100:
        raise HookFailed("it set a nice that is not above the user's, or above 100")
    before, spec.nice = spec.nice, value
    yield "nice", str(before), str(value)


def _hold(spec: JobSpec, value: Any) -> Iterator[Changed]:
    if value is not True:
        raise HookFailed("it released a job that its user submits on hold")
    spec.hold = True
    yield "hold", "no", "yes"


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise HookFailed(f"it set a {what} that is no text")
    return value


def _texts(value: Any, what: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
        raise HookFailed(f"it set {what} that are no texts by name")
    return value


CHANGES: Final[Mapping[str, Callable[[JobSpec, Any], Iterator[Changed]]]] = {
    "queue": _queue,
    "time_limit_s": _time_limit,
    "labels": _labels,
    "environment": _environment,
    "image": _image,
    "nice": _nice,
    "hold": _hold,
}
