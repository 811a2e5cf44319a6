"""Messages of dlq.v1 to and from the agent's own values; the only place that knows both.

A value has its message's fields by name, with three rules. Seconds (`grace_s`) are a Duration
(`grace_duration`). A key is the names of a job and of a node's rank. A message with only a list is
that list.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import cache, partial
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from dlq.v1 import agent_service_pb2 as wire
from dlq.v1 import job_pb2, lease_pb2, profile_pb2, resource_pb2
from dlq_common.job_fields.table import FIELDS
from dlq_common.live_resize import FEATURE, LIVE
from dlq_common.text.wire import from_duration, to_duration
from dlq_nodeagent.devices.cores import NO_CORES, JobCores
from dlq_nodeagent.devices.host import HostFacts
from dlq_nodeagent.devices.port import Device
from dlq_nodeagent.model import messages as values
from dlq_nodeagent.model.launch import RankKey
from dlq_nodeagent.model.messages import Fence, FromAgent, FromMaster, Phase

_BODIES: Mapping[type, str] = {
    values.Hello: "hello",
    values.Heartbeat: "heartbeat",
    values.RankReport: "report",
    values.CommandResult: "command_result",
    values.ProfileEvidence: "profile_evidence",
    values.GpuLook: "gpu_look",
    values.StepsReport: "steps_report",
}
_VALUES: Mapping[type[Message], type] = {
    wire.Welcome: values.Welcome,
    wire.HeartbeatReply: values.HeartbeatReply,
    wire.ReportAck: values.ReportAck,
    wire.ProfileAck: values.ProfileAck,
    wire.StepsAck: values.StepsAck,
    wire.StopCommand: values.Stop,
    wire.SignalCommand: values.Signal,
    wire.SaveCommand: values.Save,
    wire.SuspendCommand: values.Suspend,
    wire.ResumeCommand: values.Resume,
    wire.OpenLogCommand: values.OpenLog,
    wire.OpenExecCommand: values.OpenExec,
    wire.OpenSamplesCommand: values.OpenSamples,
    wire.LookAtGpusCommand: values.LookAtGpus,
    lease_pb2.Fence: Fence,
    profile_pb2.ProfileOrder: values.ProfileOrder,
    job_pb2.ContainerSpec: values.ContainerRequest,
    job_pb2.Mount: values.MountRequest,
}
_OTHER_NAMES = {
    "total": "total_step_count",
    "largest_low_bytes": "largest_tensor_low_bytes",
    "largest_high_bytes": "largest_tensor_high_bytes",
}
_NOT_SENT = frozenset({"ended_s"})
# Words that may repeat a job's file names; they are cut, and made fit for any message.
_FREE_WORDS = frozenset(
    {"error", "detail", "last_lines", "failed_task", "gpus_held", "failure", "own_only"}
)
_LONGEST_WORDS = 1000
_MAY_BE_UNSET = frozenset({"profile", "shm_size_bytes", "time_left_s"})
_AT_LAUNCH = tuple(
    (key, field, field.wire.path.partition(".")[0], field.wire.take)
    for key, field in FIELDS.items()
    if field.wire is not None and (field.launch or field.to_agent)
)
"""Fields of a job that its launch may have, each with the field of JobSpec that it lies in."""
_POSITIVE = frozenset({"heartbeat_s", "ttl_s", "hold_s"})
_Put = Callable[[Any, Any], None]


class BadMessage(ValueError):
    """The master sent a message that makes no sense; the session is given up."""


def node_facts(
    host: HostFacts,
    devices: Iterable[Device],
    *,
    address: str,
    root_jobs: bool,
    pool: str = "",
    instance_id: str = "",
    runtimes: Iterable[str] = (),
    cores: JobCores = NO_CORES,
    suspend_bytes: int = 0,
) -> wire.NodeFacts:
    """The facts of this machine for a Hello. `suspend_bytes`: the most GPU memory of suspended jobs
    that it may hold.
    """
    listed = list(devices)
    facts = wire.NodeFacts(
        gpus=[
            resource_pb2.Gpu(
                index=device.index,
                uuid=device.uuid,
                gpu_type=device.gpu_type,
                memory_bytes=device.memory_bytes,
            )
            for device in listed
        ],
        virtual_devices=any(device.virtual for device in listed),
        root_jobs=root_jobs,
        pool=pool,
        instance_id=instance_id,
        runtimes=list(runtimes),
        features=[FEATURE],
        address=address,
        job_core_count=cores.count,
        core_memory_bytes=cores.memory_bytes,
        suspend_memory_bytes=suspend_bytes,
    )
    _fill(facts, host)
    return facts


# ---- from the agent


def encode(message: FromAgent, facts: wire.NodeFacts) -> wire.SessionRequest:
    """One message of the stream; `facts` go into a Hello."""
    request = wire.SessionRequest()
    body = getattr(request, _BODIES[type(message)])
    body.SetInParent()
    _fill(body, message)
    if isinstance(message, values.Hello):
        request.hello.facts.CopyFrom(facts)
    return request


def _fill(message: Message, value: object) -> None:
    """Set a message's fields to the value's parts. A part that is None stays unset."""
    kind: Any = type(value)
    for name, silent, put in _puts(kind, message.DESCRIPTOR):
        part = getattr(value, name)
        if part if silent else part is not None:
            put(message, part)


@cache
def _puts(kind: Any, descriptor: Descriptor) -> tuple[tuple[str, bool, _Put], ...]:
    """The parts of a value that are sent, and how each is put into its message. The word between
    says whether it stays out while it is empty, as do lists, and scalars without presence.
    """
    by_name = descriptor.fields_by_name
    found = [(name, by_name.get(_field_name(name))) for name in _names(kind)]
    return tuple(
        (name, field is not None and not field.has_presence, _put_of(name, field))
        for name, field in found
        if name not in _NOT_SENT
    )


def _put_of(name: str, field: FieldDescriptor | None) -> _Put:
    """Without a field of its name, a part has its own fields in the same message."""
    if name == "key":
        return _put_key
    return _fill if field is None else partial(_put, field)


def _put_key(message: Any, key: RankKey) -> None:
    message.job_id, message.node_rank = key.job_id, key.node_rank


def _put(field: FieldDescriptor, message: Any, part: Any) -> None:
    name, inner = field.name, field.message_type
    if name in _FREE_WORDS:
        part = _fit(part) if isinstance(part, str) else [_fit(line) for line in part]
    if inner is None and not field.is_repeated:
        setattr(message, name, _scalar(field, part))
        return
    target = getattr(message, name)
    if inner is None:
        target.extend(part)
    elif field.is_repeated:
        for each in part:
            _fill(target.add(), each)
    elif name.endswith("_duration"):
        target.CopyFrom(to_duration(part))
    else:
        target.SetInParent()
        if type(part) is tuple:
            _put(inner.fields[0], target, part)
        else:
            _fill(target, part)


def _scalar(field: FieldDescriptor, part: Any) -> Any:
    if isinstance(part, Phase):
        return wire.RankPhase.Value(f"RANK_PHASE_{part.name}")
    return part.encode() if field.type == FieldDescriptor.TYPE_BYTES else part


def _fit(words: str) -> str:
    return words[:_LONGEST_WORDS].encode("utf-8", "replace").decode("utf-8")


# ---- from the master


def decode(message: wire.SessionResponse) -> FromMaster | None:
    """One message of the stream; None: a later version's message that this agent does not know.

    BadMessage: it makes no sense.
    """
    body = message.WhichOneof("body")
    if body is None:
        return None
    try:
        if body == "command":
            return _command(message.command)
        value: FromMaster = _value_of(getattr(message, body))
    except ValueError as error:
        raise BadMessage(str(error)) from error
    return value


def _command(command: wire.Command) -> values.Command | None:
    body = command.WhichOneof("body")
    if body is None:
        return None
    order = _value_of(getattr(command, body))
    return values.Command(sequence=command.sequence, epoch=command.epoch, order=order)


def _value_of(message: Message) -> Any:
    if isinstance(message, wire.LaunchCommand):
        return _launch(message)
    kind = _VALUES.get(type(message))
    if kind is None:
        (alone,) = message.DESCRIPTOR.fields
        return tuple(getattr(message, alone.name))
    return kind(**_parts_of(kind, message))


def _parts_of(kind: type, message: Any) -> dict[str, Any]:
    """The value's parts that the message has. An unset optional one is None."""
    descriptor = message.DESCRIPTOR
    parts = dict(_unsaid_parts(kind, descriptor))
    said = {field.name for field, _ in message.ListFields()}
    for name, field in _fields_of(kind, descriptor):
        if field is None:
            parts[name] = _key(message)
        elif field.name in said or name in _POSITIVE:
            parts[name] = _part(message, name, field)
    return parts


def _part(message: Any, name: str, field: FieldDescriptor) -> Any:
    part = getattr(message, field.name)
    if field.is_repeated:
        return tuple(part) if field.message_type is None else tuple(map(_value_of, part))
    if name in _MAY_BE_UNSET:
        if not message.HasField(field.name):
            return None
        if name.endswith("_s"):
            return from_duration(part)
    elif name in _POSITIVE:
        return _positive(from_duration(part), name.removesuffix("_s"))
    elif name.endswith("_s"):
        return max(0.0, from_duration(part))
    return part if field.message_type is None else _value_of(part)


def _launch(launch: wire.LaunchCommand) -> values.Launch:
    spec = launch.spec
    limits = spec.resources
    return values.Launch(
        **_of_the_table(spec),
        **_parts_of(values.Launch, launch),
        command=tuple(spec.command),
        script=spec.script,
        environment=dict(spec.environment),
        soft_limits=dict(spec.soft_limits),
        runtime=spec.runtime,
        preempt_signal=spec.preempt.signal,
        checkpoint_named=bool(spec.checkpoint.directory),
        settle_s=max(0.0, from_duration(spec.checkpoint.settle_duration)),
        container=_value_of(spec.container) if spec.HasField("container") else None,
        sizes=tuple(spec.elastic.gpu_counts),
        live=spec.elastic.resize == LIVE,
        stdin=spec.interactive.stdin,
        asked_gpus=max(0, limits.gpu_count),
        gpu_memory_bytes=max(0, limits.gpu_memory_bytes) if limits.halves_batch else 0,
    )


def _of_the_table(spec: job_pb2.JobSpec) -> dict[str, Any]:
    """Fields that a launch takes over unchanged; missing ones have the record's default."""
    named: dict[str, Any] = {}
    others: dict[str, Any] = {}
    said = {field.name for field, _ in spec.ListFields()}
    for key, field, first, take in _AT_LAUNCH:
        if first not in said:
            continue
        value = take(spec)
        if value is not None and field.launch:
            named[field.launch] = value
        if value is not None and field.to_agent:
            others[key] = value
    return {**named, "fields": others}


def _key(message: Any) -> RankKey:
    # Parsed, because it names directories: a master gone mad must not reach outside them.
    return RankKey.parse(f"{message.job_id}.{message.fence.attempt}.{message.node_rank}")


def _positive(seconds: float, what: str) -> float:
    if seconds <= 0:
        raise BadMessage(f"{what} of {seconds} s")
    return seconds


# ---- both


@cache
def _names(kind: type) -> tuple[str, ...]:
    named: tuple[str, ...] | None = getattr(kind, "_fields", None)
    return named or tuple(field.name for field in fields(kind))


@cache
def _fields_of(kind: Any, descriptor: Descriptor) -> tuple[tuple[str, FieldDescriptor | None], ...]:
    """The parts of a value that a message has, each with its field; a key has several."""
    by_name = descriptor.fields_by_name
    found = [(name, by_name.get(_field_name(name))) for name in _names(kind)]
    return tuple((name, field) for name, field in found if name == "key" or field is not None)


@cache
def _unsaid_parts(kind: Any, descriptor: Descriptor) -> Mapping[str, Any]:
    """The parts of a value whose message is unset."""
    empty = GetMessageClass(descriptor)()
    return {
        name: _part(empty, name, field)
        for name, field in _fields_of(kind, descriptor)
        if field is not None and name not in _POSITIVE
    }


@cache
def _field_name(name: str) -> str:
    if name.endswith("_s"):
        return f"{name.removesuffix('_s')}_duration"
    return _OTHER_NAMES.get(name, name)
