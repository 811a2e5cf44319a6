"""A job's stored spec as a layer again, so that single keys of it can be changed.

Only changed keys are written back. Fields that this version does not know, or that have no key of
ours, stay as submitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from google.protobuf.message import Message

from dlq.v1 import job_pb2, resource_pb2
from dlq_cli.facts.job import named_types
from dlq_cli.spec.fields import ALIASES, READERS, put
from dlq_cli.spec.merge import merge
from dlq_cli.spec.message import stored_lateness, to_message
from dlq_cli.spec.validate import Spec, finish
from dlq_cli.spec.values.container import entries
from dlq_cli.spec.values.given import Given, Layer, ReadLayer, unknown_key, wrong
from dlq_common.job_fields.reading.containers import MountSpec
from dlq_common.job_fields.reading.deadlines import FULL, DeadlineText, Due
from dlq_common.job_fields.reading.ordering import DependencyText, TermText
from dlq_common.job_fields.reading.words import SignalAhead
from dlq_common.job_fields.table import FIELDS
from dlq_common.text.arrays import ArrayText, IndexRange
from dlq_common.text.instants import format_instant
from dlq_common.text.wire import from_duration

# A job without an image is a process of the node; an image chooses by itself.
_BY_DEFAULT = "process"


class ChangedKeys(NamedTuple):
    """A spec after changes: the message, and its text."""

    message: job_pb2.JobSpec
    spec: Spec


def changed(
    stored: job_pb2.JobSpec,
    source: str,
    sets: Iterable[str],
    unsets: Iterable[str],
    shell: Mapping[str, str],
) -> ChangedKeys:
    """`stored` with KEY=VALUE `sets` over it and `unsets` keys taken out of it.

    Keys are those of a spec file, such as `resources.gpus` or `env.LR`. InvalidRequest names a key
    that is unknown, cannot have that value, or contradicts the rest.
    """
    base = stored_layer(stored, source)
    kept = _without(base, unsets)
    asked = _asked(sets)
    before = _finished(stored, base)
    after = _finished(stored, merge([kept, asked], shell))
    message = job_pb2.JobSpec()
    message.CopyFrom(stored)
    patch(message, to_message(before), to_message(after))
    if after.begin is None:  # to_message does not make this part
        message.ClearField("begin_time")
    message.ClearField("deadlines")  # instants in them are entered when it is sent
    message.deadlines.extend(to_message(after).deadlines)
    if "image" in asked and "runtime" not in asked and message.runtime == _BY_DEFAULT:
        message.runtime = ""
    return ChangedKeys(message, after)


def only_task(message: job_pb2.JobSpec, index: int) -> None:
    """Make the spec of an array that of one of its tasks, with the index it had."""
    message.array.CopyFrom(job_pb2.ArraySpec())
    message.array.ranges.add(first=index, last=index, step=1)


def stored_layer(spec: job_pb2.JobSpec, source: str) -> Layer:
    """The keys of a stored spec; `source` ("job 17") is the origin of all of it."""
    return {key: Given(value, source) for key, value in _values(spec)}


def _values(spec: job_pb2.JobSpec) -> Iterator[tuple[str, object]]:
    yield ("run", spec.script) if spec.script else ("command", tuple(spec.command))
    yield from _resources(spec.resources)
    for key, field in FIELDS.items():
        value = None if field.wire is None else field.wire.take(spec)
        if value is not None and (key, value) != ("runtime", _BY_DEFAULT):
            yield key, value
    if spec.preempt.signal:
        ahead_s = round(from_duration(spec.preempt.warning_duration))
        yield "preempt.signal", SignalAhead(spec.preempt.signal, ahead_s)
    if spec.HasField("elastic"):
        yield "elastic.sizes", tuple(spec.elastic.gpu_counts)
    yield from _ordering(spec)
    yield from _deadlines(spec)
    if spec.HasField("lateness"):
        late = stored_lateness(spec.lateness)
        yield "due", late.due
        yield "weight", late.weight_per_hour
    yield from ((f"env.{name}", text) for name, text in sorted(spec.environment.items()))
    yield from ((f"labels.{name}", text) for name, text in sorted(spec.labels.items()))
    mounts = (MountSpec(m.source, m.target, m.read_only) for m in spec.container.mounts)
    yield from entries("mounts", tuple(mounts)).items()
    yield from entries("secrets", tuple(spec.container.secrets)).items()


def _resources(request: resource_pb2.ResourceRequest) -> Iterator[tuple[str, object]]:
    if request.core_count:
        yield "resources.cores", request.core_count
    else:
        yield "resources.gpus_total", request.gpu_count
    if types := named_types(request):
        yield "resources.gpu_type", types
    if request.constraint:
        pairs = sorted(request.constraint.items())
        yield "resources.constraint", tuple(f"{name}={value}" for name, value in pairs)
    if request.HasField("node_count"):
        yield "nodes", request.node_count


def _ordering(spec: job_pb2.JobSpec) -> Iterator[tuple[str, object]]:
    if spec.HasField("array"):
        ranges = (IndexRange(each.first, each.last, each.step) for each in spec.array.ranges)
        yield "array", ArrayText(tuple(ranges), spec.array.concurrent_count)
    if spec.HasField("dependency"):
        terms = (
            TermText(
                job_pb2.DependencyRelation.Name(term.relation).rpartition("_")[2].lower(),
                term.job_id,
                term.delay_duration.seconds // 60,
            )
            for term in spec.dependency.terms
        )
        yield "depends_on", DependencyText(tuple(terms), spec.dependency.any)
        if spec.dependency.cancel_if_never:
            yield "cancel_if_never", True
    if spec.HasField("begin_time"):
        yield "begin", format_instant(spec.begin_time.seconds + spec.begin_time.nanos / 1e9)


def _deadlines(spec: job_pb2.JobSpec) -> Iterator[tuple[str, object]]:
    steps = [DeadlineText(_due(step), step.reward) for step in spec.deadlines]
    if steps:
        strict = len(steps) == 1 and steps[0].reward == FULL
        yield "deadline" if strict else "soft_deadline", tuple(steps)


def _due(step: job_pb2.DeadlineStep) -> Due:
    if step.HasField("due_time"):
        return Due(text=format_instant(step.due_time.seconds + step.due_time.nanos / 1e9))
    return Due(after_s=from_duration(step.due_duration))


def _asked(sets: Iterable[str]) -> Layer:
    layer: Layer = {}
    for text in sets:
        key, equals, value = text.partition("=")
        origin = f"--set {key}"
        if not equals:
            raise wrong(origin, "write KEY=VALUE, with a key of a spec file: --set time_limit=2h")
        table, dot, name = key.partition(".")
        if dot and table in ("env", "labels"):
            put(layer, table, [f"{name}={value}"], origin)
        else:
            put(layer, key, value, origin)
    return layer


def _without(base: ReadLayer, unsets: Iterable[str]) -> Layer:
    """The layer without some keys, `env` and the like with all below them."""
    left = dict(base)
    for word in unsets:
        key = ALIASES.get(word, word)
        gone = [known for known in left if known == key or known.startswith(f"{key}.")]
        if not gone and key not in READERS:
            raise unknown_key(f"--unset {word}", word, READERS, ())
        if not gone:
            raise wrong(f"--unset {word}", "the job's spec does not say it")
        for known in gone:
            del left[known]
    return left


def _finished(stored: job_pb2.JobSpec, layer: ReadLayer) -> Spec:
    arguments = tuple(stored.command) if stored.script and "run" in layer else ()
    return finish(layer, directory=stored.working_directory or "/", arguments=arguments)


def patch(target: Message, before: Message, after: Message) -> None:
    """Make those fields of `target` as in `after` that differ from `before`."""
    for field in target.DESCRIPTOR.fields:
        if _same(field, before, after):
            continue
        if _is_single_message(field) and all(
            each.HasField(field.name) for each in (target, before, after)
        ):
            patch(*(getattr(each, field.name) for each in (target, before, after)))
        else:
            _copy(field, after, target)


def _same(field: Any, before: Message, after: Message) -> bool:
    if field.has_presence and before.HasField(field.name) != after.HasField(field.name):
        return False
    return bool(getattr(before, field.name) == getattr(after, field.name))


def _is_single_message(field: Any) -> bool:
    return field.message_type is not None and not field.is_repeated


def _copy(field: Any, source: Message, target: Message) -> None:
    target.ClearField(field.name)
    value: Any = getattr(source, field.name)
    into: Any = getattr(target, field.name)
    if field.has_presence and not source.HasField(field.name):
        return
    if _is_single_message(field):
        into.CopyFrom(value)
    elif not field.is_repeated:
        setattr(target, field.name, value)
    elif hasattr(into, "update"):
        into.update(value)
    else:
        into.extend(value)
