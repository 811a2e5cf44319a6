"""Fields of a job as stories: what each becomes on its way from a spec to the agent, or why not.

Every key of a spec file, every field of a JobSpec and of an UpdateJobRequest is given a handful of
values, good and bad, over several specs that stand on their own.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from dlq.v1.agent_service_pb2 import Command, LaunchCommand, SessionResponse
from dlq.v1.job_pb2 import JobSpec
from dlq.v1.job_service_pb2 import SubmitJobRequest, UpdateJobRequest
from dlq_cli.commands.jobs.update import wishes
from dlq_cli.spec.fields import FLAGS, READERS, put
from dlq_cli.spec.merge import merge
from dlq_cli.spec.message import put_instants, to_message
from dlq_cli.spec.stored import stored_layer
from dlq_cli.spec.template import FORMS, template
from dlq_cli.spec.understood import understood
from dlq_cli.spec.validate import finish
from dlq_cli.spec.values.given import Layer
from dlq_common.errors import DlqError
from dlq_common.job_fields.table import FIELDS, SECTIONS
from dlq_master.control.stimuli import Caller
from dlq_master.model.ids import JobId
from dlq_master.rpc.specs.intake import Edit, submit_stimulus, update_stimulus
from dlq_nodeagent.line.wire import BadMessage, decode

NOW_S = 1_800_000_000.0
RAW: tuple[object, ...] = (
    "", "x", "a b", "none", "all", "true", "no", "0", "1", "7", "-3", "101", "2000000", "2:8",
    "2,4,8", "h100:8", "90m", "1-00:00:00", "auto", "USR1", "USR2@60", "INT", "KILL", "slurm",
    "per-gpu", "live", "restart", "cancel", "continue", "ranks", "process", "podman", "../x", "/x",
    "80GB", "8h:100,+10%:80", "2026-12-01T08:00Z", "afterok:3", "0-9%4", "K=V", "hf", "host", 3, 0,
    -1, 2.5, True, False, ["A=b", "C"], ["/data:/data:ro"], [2, 4], {"K": "V"}, "é", "a\0b",
    "99,85",
)  # fmt: skip
BASES: tuple[Mapping[str, object], ...] = (
    {"command": "python train.py"},
    {
        "command": "torchrun train.py", "image": "docker.io/library/x:1", "deadline": "8h",
        "estimate": "1h", "resources.gpu_memory": "80GB", "checkpoint.dir": "/shared/x",
        "array": "0-3", "depends_on": "afterok:3", "time_limit": "2h", "preempt.signal": "USR1@60",
    },
    {
        "run": "torchrun train.py", "nodes": 2, "resources.gpus": "h100:2", "elastic.gpus": "4:8",
        "compat": "slurm",
    },
    {"command": "x", "due": "8h", "weight": 5.0, "resources.gpus_total": 4, "roles.workers": 4},
)  # fmt: skip
UPDATES = (
    "time_limit", "nice", "queue", "name", "dependency", "begin", "concurrent", "deadline",
    "soft_deadline", "on_miss", "elastic", "team", "depends_on", "partition", "gpus",
)  # fmt: skip
CALLER = Caller(name="ada", role="user")


def key_story(key: str) -> Iterator[Any]:
    """What a key of a spec file becomes with each of the values, over each of the bases."""
    for base in BASES:
        for raw in (_plain_value(FIELDS[key].sample), *RAW):
            yield from _submitted({**base, key: raw})


def _plain_value(text: str) -> object:
    return tomllib.loads(f"value = {text}")["value"]


def _submitted(keys: Mapping[str, object]) -> Iterator[Any]:
    """From the keys to the message, what is told of it, and back."""
    layer: Layer = {}
    try:
        for key, raw in keys.items():
            put(layer, key, raw, f"job.toml:{len(layer) + 1}")
        spec = finish(merge([layer], {"C": "from the shell"}), directory="/home/ada")
        message = to_message(spec)
        yield message.SerializeToString(deterministic=True)
        yield understood(spec)
        put_instants(message, spec, now_s=NOW_S, zone=UTC)
        stored = stored_layer(message, "job 1").items()
        yield sorted((name, str(given.value)) for name, given in stored)
    except DlqError as refusal:
        yield [str(refusal), refusal.field if hasattr(refusal, "field") else ""]
    except ValueError as error:
        yield str(error)


def update_story(key: str) -> Iterator[Any]:
    """What `dlq update KEY=VALUE` asks for."""
    for raw in RAW:
        if isinstance(raw, str):
            try:
                yield wishes([f"{key}={raw}"], NOW_S).SerializeToString(deterministic=True)
            except DlqError as refusal:
                yield str(refusal)


def shown_story() -> Iterator[Any]:
    """What people read: flags by their sections, and the templates."""
    yield [[flag.names, flag.key, flag.metavar, flag.repeat, flag.help] for flag in FLAGS]
    yield SECTIONS
    yield [template(form) for form in FORMS]


# --- on the wire ----------------------------------------------------------------------------------


def wire_story(path: str) -> Iterator[Any]:
    """What the master makes of a JobSpec with this field, and an agent of the launch."""
    for base in BASES:
        layer: Layer = {}
        for key, raw in base.items():
            put(layer, key, raw, "job.toml")
        spec = to_message(finish(layer, directory="/home/ada"))
        for changed in _variants(spec, path):
            yield from _accepted(changed)
            yield from _launched(changed)


def _accepted(spec: JobSpec) -> Iterator[Any]:
    try:
        yield submit_stimulus(SubmitJobRequest(request_id="1", spec=spec), CALLER)
    except DlqError as refusal:
        yield [str(refusal), getattr(refusal, "field", "")]


def _launched(spec: JobSpec) -> Iterator[Any]:
    launch = LaunchCommand(job_id="1", spec=spec, gpu_indexes=[0])
    launch.hold_duration.seconds = 60
    try:
        yield decode(SessionResponse(command=Command(sequence=1, epoch=1, launch=launch)))
    except BadMessage as bad:
        yield str(bad)


def request_story(path: str) -> Iterator[Any]:
    """What the master makes of an UpdateJobRequest with this field."""
    edit = Edit(caller=CALLER, request_id="1", job_id=JobId(1), expected_version=0)
    for changed in _variants(UpdateJobRequest(), path):
        try:
            yield update_stimulus(changed, edit)
        except DlqError as refusal:
            yield [str(refusal), getattr(refusal, "field", "")]


def paths(of: Any, above: str = "") -> Iterator[str]:
    """The fields of a message, and of those that it holds once."""
    for field in of.fields:
        nested = field.message_type
        once = nested is not None and not _is_repeated(field)
        if once and nested.full_name.startswith("dlq."):
            yield from paths(nested, f"{above}{field.name}.")
        else:
            yield f"{above}{field.name}"


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated)


def _variants(message: Any, path: str) -> Iterator[Any]:
    *above, name = path.split(".")
    for value in _values(message, path):
        changed = type(message)()
        changed.CopyFrom(message)
        inner: Any = changed
        for each in above:
            inner = getattr(inner, each)
        if value is None:
            inner.ClearField(name)
        else:
            _set(inner, name, value)
        yield changed


def _values(message: Message, path: str) -> Iterable[object]:
    of: Any = message.DESCRIPTOR
    *above, name = path.split(".")
    for each in above:
        of = of.fields_by_name[each].message_type
    field = of.fields_by_name[name]
    nested = field.message_type
    if nested is not None and nested.GetOptions().map_entry and name == "soft_limits":
        return (None, {"STACK": 0}, {"STACK": 2**64 - 1, "CPU": 1}, {"NICE": 1}, {"": 1})
    if nested is not None and nested.GetOptions().map_entry and name == "max_restart_counts":
        return (None, {"node": 5}, {"gpu": 0, "error": 100}, {"start": 101}, {"disk": 1}, {"": -1})
    if nested is not None and nested.GetOptions().map_entry:
        return (None, {"K": "V"}, {"family": "x"}, {"": ""}, {"a b": "c\n"}, {"DLQ_X": "1"})
    if nested is not None and not nested.full_name.startswith("google."):
        return (None,)
    if nested is not None:
        return (None, -1, 0, 1, 59, 60, 3600, 3601, 700_000, 10**10)
    found = _PLAIN[field.cpp_type]
    return (None, [], *([each] for each in found), list(found)) if _is_repeated(field) else found


_PLAIN: Mapping[int, tuple[object, ...]] = {
    FieldDescriptor.CPPTYPE_STRING: (
        "", "x", "a b", "TERM", "USR1", "USR2", "main", "ranks", "process", "podman", "slurm",
        "per-gpu", "per-node", "live", "restart", "yes", "no", "cancel", "continue", "host", "none",
        "/x", "../x", "#!/bin/sh\nx\n", "h100", "docker.io/library/x:1", "node-1", "é", "a\nb",
        "y" * 300,
    ),
    FieldDescriptor.CPPTYPE_INT32: (-101, -1, 0, 1, 2, 4, 7, 100, 101, 255, 1025, 100_001),
    FieldDescriptor.CPPTYPE_INT64: (-1, 0, 1, 1 << 20, 10**12, 10**16),
    FieldDescriptor.CPPTYPE_DOUBLE: (-1.0, 0.0, 0.5, 8.0, 1e9, 1e13, float("inf"), float("nan")),
    FieldDescriptor.CPPTYPE_BOOL: (False, True),
}  # fmt: skip


def _set(message: Any, name: str, value: Any) -> None:
    into = getattr(message, name)
    if isinstance(value, list):
        del into[:]
        into.extend(value)
    elif isinstance(value, dict):
        into.clear()
        into.update(value)
    elif isinstance(into, Message):
        into.seconds = value  # type: ignore[attr-defined]  # a Duration or a Timestamp
    else:
        setattr(message, name, value)


def keys() -> Iterable[str]:
    """Of a spec file."""
    return READERS
