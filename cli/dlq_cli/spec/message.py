"""The spec as the message that travels."""

from __future__ import annotations

from datetime import tzinfo

from dlq.v1 import job_pb2, resource_pb2
from dlq_cli.spec.validate import Spec
from dlq_common.job_fields.reading.deadlines import Deadlines, Due, LatenessSpec
from dlq_common.job_fields.reading.ordering import DependencyText, begin_s
from dlq_common.job_fields.table import FIELDS
from dlq_common.text.instants import format_instant, parse_instant
from dlq_common.text.wire import from_duration, to_duration, to_timestamp


def to_message(spec: Spec) -> job_pb2.JobSpec:
    """A JobSpec; fields that the cluster decides and instants that need `now` are unset."""
    message = job_pb2.JobSpec(
        command=spec.command,
        script=spec.script or "",
        resources=resource_pb2.ResourceRequest(
            gpu_count=spec.gpu_count,
            core_count=spec.core_count,
            node_count=spec.node_count,
            gpu_type=next(iter(spec.gpu_types), ""),
            or_gpu_types=spec.gpu_types[1:],
            constraint=dict(each.split("=", 1) for each in spec.constraint),
        ),
        environment=spec.environment,
        labels=spec.labels,
    )
    message.preempt.signal = spec.signal or ""
    message.checkpoint.SetInParent()
    message.retry.SetInParent()
    _put_plain(message, spec)
    if spec.elastic is not None:
        message.elastic.gpu_counts.extend(spec.elastic.sizes)
    for mount in spec.mounts:
        message.container.mounts.add(**mount._asdict())
    if spec.secrets:
        message.container.secrets.extend(spec.secrets)
    for due, reward in spec.deadlines:
        step = message.deadlines.add(reward=reward)
        if due.after_s is not None:
            step.due_duration.CopyFrom(to_duration(due.after_s))
    if spec.lateness is not None:
        message.lateness.CopyFrom(lateness_message(spec.lateness))
    _add_ordering(message, spec)
    if spec.warning_s is not None:
        message.preempt.warning_duration.CopyFrom(to_duration(spec.warning_s))
    return message


def _put_plain(message: job_pb2.JobSpec, spec: Spec) -> None:
    """Enter the fields that travel as they are."""
    for field in FIELDS.values():
        value = spec.of(field)
        if field.wire is not None and value is not None:
            field.wire.put(message, value)


def put_instants(message: job_pb2.JobSpec, spec: Spec, *, now_s: float, zone: tzinfo) -> None:
    """Enter the values that count from the submission, `now_s`: its begin and its deadlines."""
    if spec.begin is not None:
        at_s = begin_s(spec.begin, now_s=now_s, zone=zone)
        message.begin_time.CopyFrom(to_timestamp(at_s))
    for step, (due, _) in zip(message.deadlines, spec.deadlines, strict=True):
        if due.after_s is None:
            at_s = parse_instant(due.text, now_s=now_s, zone=zone)
            step.due_time.CopyFrom(to_timestamp(at_s))
    if spec.lateness is not None:
        put_due(message.lateness, spec.lateness, now_s=now_s, zone=zone)


def deadline_messages(
    asked: Deadlines, *, now_s: float, zone: tzinfo
) -> list[job_pb2.DeadlineStep]:
    """Deadlines in the place of others, where durations count from the call."""
    made = []
    for due, reward in asked:
        step = job_pb2.DeadlineStep(reward=reward)
        if due.after_s is None:
            at_s = parse_instant(due.text, now_s=now_s, zone=zone)
            step.due_time.CopyFrom(to_timestamp(at_s))
        else:
            step.due_duration.CopyFrom(to_duration(due.after_s))
        made.append(step)
    return made


def _add_ordering(message: job_pb2.JobSpec, spec: Spec) -> None:
    """When it may start, but for its begin: that is known when it is sent."""
    if spec.array is not None:
        for each in spec.array.ranges:
            message.array.ranges.add(first=each.first, last=each.last, step=each.step)
        message.array.concurrent_count = spec.array.concurrent
    if spec.depends_on is not None:
        message.dependency.CopyFrom(dependency_message(spec.depends_on))
        message.dependency.cancel_if_never = spec.cancel_if_never


def dependency_message(depends_on: DependencyText) -> job_pb2.DependencySpec:
    """The jobs that must come first."""
    message = job_pb2.DependencySpec(any=depends_on.any)
    for term in depends_on.terms:
        relation = job_pb2.DependencyRelation.Value(f"DEPENDENCY_RELATION_{term.relation.upper()}")
        sent = message.terms.add(relation=relation, job_id=term.job)
        if term.minutes:
            sent.delay_duration.seconds = 60 * term.minutes
    return message


def lateness_message(asked: LatenessSpec) -> job_pb2.LatenessSpec:
    """The message to send, without an instant (`put_due`)."""
    message = job_pb2.LatenessSpec(weight_per_hour=asked.weight_per_hour)
    if asked.due.after_s is not None:
        message.due_duration.CopyFrom(to_duration(asked.due.after_s))
    return message


def put_due(
    message: job_pb2.LatenessSpec, asked: LatenessSpec, *, now_s: float, zone: tzinfo
) -> None:
    """Enter the instant that is meant at the submission."""
    if asked.due.after_s is None:
        at_s = parse_instant(asked.due.text, now_s=now_s, zone=zone)
        message.due_time.CopyFrom(to_timestamp(at_s))


def stored_lateness(message: job_pb2.LatenessSpec) -> LatenessSpec:
    """The submitted lateness, from the master's stored form."""
    due = Due(after_s=from_duration(message.due_duration))
    if message.HasField("due_time"):
        at = message.due_time
        due = Due(text=format_instant(at.seconds + at.nanos / 1e9))
    return LatenessSpec(due, message.weight_per_hour)
