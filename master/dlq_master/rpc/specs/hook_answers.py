"""The job that a hook is shown, and the part of its answer that counts: the fields of CHANGES.

If a hook fails, the job is refused or passes, as configured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from dlq.v1.job_pb2 import HookNote, JobSpec
from dlq_common.errors import IllegalTransition, TryAgain
from dlq_common.text.names import printable
from dlq_common.text.units import format_span
from dlq_common.text.wire import from_duration, said, to_duration
from dlq_master.control.config import OPEN
from dlq_master.hooks.desk import ON_SUBMIT
from dlq_master.hooks.process import HookBusy, HookFailed
from dlq_master.rpc.specs.cores import is_without_gpus

LONGEST_NOTE: Final = 200


def told_job(spec: JobSpec, tasks: int) -> Mapping[str, Any]:
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


def read_answer(answer: Mapping[str, Any]) -> tuple[Mapping[str, Any], Sequence[str]]:
    """The changes and the warnings of an answer that refuses nothing."""
    changed, warnings = answer.get("changed", {}), answer.get("warnings", [])
    if not isinstance(changed, dict) or not isinstance(warnings, list):
        raise HookFailed("it answered what makes no sense")
    return changed, warnings


def changed_field(spec: JobSpec, name: str, value: Any) -> Sequence[HookNote]:
    """Change a field of a spec as the hook says. HookFailed: the hook may not change it so."""
    if name not in CHANGES:
        raise HookFailed(f"it changed {note_line(name)}, which no hook may change")
    try:
        return [
            HookNote(
                hook=ON_SUBMIT,
                field=note_line(what),
                before=note_line(before),
                after=note_line(after),
            )
            for what, before, after in CHANGES[name](spec, value)
        ]
    except (ValueError, TypeError):  # half a character, for example
        raise HookFailed(f"it set {note_line(name)} to what no job can have") from None


def refuse_failed(failed: HookFailed, policy: str, what: str, done: str) -> None:
    """Refuse the job if the hook has failed, as configured.

    With "open" it passes, but not while very many calls arrive: a user could bypass the hook so.
    """
    if isinstance(failed, HookBusy):
        wait_s = max(1, round(failed.again_s or 0.0))
        hint = f"{done}; try again in {wait_s} s"
        raise TryAgain(
            f"hook {ON_SUBMIT} has not seen {what}: {failed.words}",
            hint=hint, hook=ON_SUBMIT, retry_after_s=wait_s,
        )  # fmt: skip
    if policy == OPEN:
        return
    told = f"hook {ON_SUBMIT} failed, and without it no job is accepted: {failed.words}"
    if failed.again_s is None:
        hint = f"{done}; tell an operator: the same job will fail again"
        raise IllegalTransition(told, hint=hint, hook=ON_SUBMIT)
    wait_s = max(1, round(failed.again_s))
    hint = f"{done}; try again in {wait_s} s, and then tell an operator"
    raise TryAgain(told, hint=hint, hook=ON_SUBMIT, retry_after_s=wait_s)


def note_line(words: object) -> str:
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
    """The environment without values, which may be secrets."""
    before, after = dict(spec.environment), _texts(value, "environment")
    for name, old in before.items():
        if after.get(name) != old:
            told = f"it changed the variable {note_line(name)} of the user; it may add variables"
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
