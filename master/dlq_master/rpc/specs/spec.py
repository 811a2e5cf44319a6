"""Checks every field of a JobSpec, and fills in its defaults.

Each refusal is an InvalidRequest that names the field. The loop checks the queue, the size of the
cluster, and the user's rights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from dlq.v1.job_pb2 import JobSpec
from dlq.v1.resource_pb2 import ResourceRequest
from dlq_common.errors import InvalidRequest
from dlq_common.job_fields.limits import Lasts, Limit, OneOf, Passes, refused
from dlq_common.job_fields.reading.words import PER_GPU, STDINS, TERMINAL
from dlq_common.job_fields.table import FIELDS
from dlq_common.job_fields.wire import Plain
from dlq_common.text.container_names import NETWORKS
from dlq_common.text.names import check_argument, check_env, check_word
from dlq_common.text.soft_limits import check_soft_limits
from dlq_common.text.units import DAY
from dlq_master.model.resources import CORE_TYPE
from dlq_master.rpc.specs.container_spec import RUNTIME, check_container
from dlq_master.rpc.specs.cores import check_cores, is_without_gpus
from dlq_master.rpc.specs.deadlines import check_deadlines, check_lateness, with_sizes
from dlq_master.rpc.specs.elastic import check_elastic
from dlq_master.rpc.specs.node_choice import check_choice
from dlq_master.rpc.specs.ordering import MOST_TASKS, check_array, check_begin, check_dependency

LARGEST_ENV_BYTES = 256 * 1024
LARGEST_SCRIPT_BYTES = 4 * 1024 * 1024  # Slurm's max_script_size
LARGEST_COMMAND_BYTES = 128 * 1024
MOST_ARGUMENTS = 4096
MOST_LABELS = 64
LONGEST_LABEL = 256
LONGEST_ORIGIN = 4_096
MOST_GPUS = 100_000
MOST_GPU_TYPES = 16

SIGNALS = ("TERM", "INT", "USR1", "USR2")
# The signals of `dlq signal`: none that only the kernel can take, and none that stops a process.
USER_SIGNALS = ("HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "TERM", "CONT", "URG", "WINCH")
RUNTIMES = ("process", "podman")
DEFAULT_SIGNAL = "TERM"
DEFAULT_RUNTIME = "process"
DEFAULT_DIRECTORY = "/"
LARGEST_KNOWN_BYTES = 8_192  # of a spec whose environment is known again


# The fields of a job's program: jobs of one loop often differ in these alone.
PROGRAM = frozenset({"name", "command", "script", "environment", "origin"})

T = TypeVar("T")


_NAME_JUNK = re.compile(r"[^A-Za-z0-9_.+=@:-]+", re.ASCII)


def checked(spec: JobSpec) -> JobSpec:
    """A copy that has passed every check, with its defaults.

    InvalidRequest names the field of the first failed check.
    """
    made = with_sizes(known_parts(spec))
    check_said(made)
    _fill_in(made)
    return made


def known_parts(spec: JobSpec) -> JobSpec:
    """A copy. InvalidRequest: the spec has fields that this master does not know."""
    known = JobSpec()
    known.CopyFrom(spec)
    known.DiscardUnknownFields()
    if known.ByteSize() != spec.ByteSize():
        _refuse_unknown(spec, "spec")
    return known


def check_said(spec: JobSpec) -> None:
    """Run the checks of the fields that are set: most specs set few."""
    for check in _awake(_said(spec)):
        check(spec)


def check_terms(spec: JobSpec) -> None:
    """The same for a spec without its program, without the checks of a program."""
    for check in _awake(_said(spec), False):
        check(spec)


def check_program(spec: JobSpec) -> None:
    """Only the checks of a spec's program."""
    for check in _awake(_said(spec), True):
        check(spec)


def _said(spec: JobSpec) -> tuple[str, ...]:
    """The fields that are set, and `resources.NAME` likewise."""
    names = [descriptor.name for descriptor, _ in spec.ListFields()]
    asked = spec.resources.ListFields()
    return (*names, *[_of_resources(descriptor.name) for descriptor, _ in asked])


_of_resources = "resources.{}".format


@lru_cache(maxsize=1024)
def _awake(
    said: tuple[str, ...], of_program: bool | None = None
) -> Sequence[Callable[[JobSpec], None]]:
    """The checks of these fields; `of_program`: those of a program, or all others."""
    return [
        check.passes
        for check in CHECKS
        if (not check.fields or not check.fields.isdisjoint(said))
        and (of_program is None or of_program == _is_of_program(check))
    ]


def _is_of_program(check: Check) -> bool:
    return check.passes is _check_command or bool(check.fields and check.fields <= PROGRAM)


def check_request_id(request_id: str) -> str:
    """Any printable text of 1 to 64 characters. The client makes it before its first try."""
    if not (0 < len(request_id) <= 64 and request_id.isascii() and request_id.isprintable()):
        what = "request_id must be 1 to 64 printable ASCII characters"
        raise InvalidRequest(what, field="request_id")
    return request_id


def _refuse_unknown(message: Message, field: str) -> None:
    """InvalidRequest: a field that this master does not know, which may forbid something."""
    if len(UnknownFieldSet(message)):
        what = f"{field} has fields that this master does not know; it is older than you"
        raise InvalidRequest(what, field=field if field == "spec" else f"spec.{field}")
    for descriptor, value in message.ListFields():
        if isinstance(value, Message):
            _refuse_unknown(value, descriptor.name)
        elif isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
            for item in value:
                if isinstance(item, Message):
                    _refuse_unknown(item, descriptor.name)


def _check_command(spec: JobSpec) -> None:
    words = spec.command
    if len(words) > MOST_ARGUMENTS:
        raise refused("command", f"has more than {MOST_ARGUMENTS} words")
    as_exec_has_it = "".join([f"{word}\0" for word in words])
    if len(as_exec_has_it.encode()) > LARGEST_COMMAND_BYTES:
        raise refused("command", f"is larger than {LARGEST_COMMAND_BYTES} bytes")
    if as_exec_has_it.count("\0") != len(words):
        raise refused("command", ": a word of the command holds a NUL byte")
    if spec.script:
        _check_script(spec.script)
    elif not spec.command or not spec.command[0]:
        raise refused("command", "is empty: say what to run")


def _check_script(script: str) -> None:
    if len(script.encode()) > LARGEST_SCRIPT_BYTES:
        raise refused("script", f"is larger than {LARGEST_SCRIPT_BYTES} bytes")
    if not script.startswith("#!"):
        raise refused("script", "must begin with #! and its interpreter, such as #!/bin/sh")
    Passes(check_argument, "the script").check("script", script)


def _check_environment(spec: JobSpec) -> None:
    environment = spec.environment
    items = tuple([(name, environment[name]) for name in environment])
    (_let_known_pass if spec.ByteSize() <= LARGEST_KNOWN_BYTES else _let_pass)(items)


def _let_pass(environment: tuple[tuple[str, str], ...]) -> None:
    # The cheap sum first: a text that is far too large is not looked at further.
    size = sum(len(name) + len(value.encode()) + 2 for name, value in environment)
    if size > LARGEST_ENV_BYTES:
        raise refused("environment", f"is {size} bytes, {LARGEST_ENV_BYTES} at most")
    Passes(check_env).check("environment", dict(environment))


# The jobs of one loop mostly share their environment. A fault is told anew each time.
_let_known_pass = lru_cache(maxsize=64)(_let_pass)


def _check_soft_limits(spec: JobSpec) -> None:
    Passes(check_soft_limits).check("soft_limits", spec.soft_limits)


def check_labels(spec: JobSpec) -> None:
    """InvalidRequest: these cannot be labels of a job."""
    labels = spec.labels
    if len(labels) > MOST_LABELS:
        raise refused("labels", f"are more than {MOST_LABELS}")
    for name, value in labels.items():
        Passes(check_word, "label").check("labels", name)
        if len(value) > LONGEST_LABEL or not value.isprintable():
            raise refused(
                "labels", f"{name} must be one line of at most {LONGEST_LABEL} characters"
            )


def check_resources(spec: JobSpec) -> None:
    """Whether a job can ask for these."""
    resources = spec.resources
    if is_without_gpus(resources):
        check_cores(spec)
        check_choice(resources)
        return
    if not 1 <= resources.gpu_count <= MOST_GPUS:
        raise refused("resources.gpu_count", f"must be between 1 and {MOST_GPUS}")
    if resources.HasField("core_memory_bytes"):
        raise refused("resources.core_memory_bytes", "means something only with core_count")
    if resources.HasField("node_count"):
        if resources.node_count < 1:
            raise refused("resources.node_count", "must be at least 1")
        if resources.gpu_count % resources.node_count:
            raise refused(
                "resources.node_count",
                f"{resources.gpu_count} GPUs cannot be split evenly over {resources.node_count} "
                "nodes",
            )
    _check_types(resources)
    check_choice(resources)
    if resources.halves_batch and not resources.HasField("gpu_memory_bytes"):
        raise refused("resources.halves_batch", "means something only with gpu_memory_bytes")


def _check_types(resources: ResourceRequest) -> None:
    if resources.gpu_type:
        _check_type("resources.gpu_type", resources.gpu_type)
    elif resources.or_gpu_types:
        raise refused(
            "resources.or_gpu_types", "means something only with gpu_type, the one liked best"
        )
    if len(resources.or_gpu_types) >= MOST_GPU_TYPES:
        raise refused(
            "resources.or_gpu_types", f"are too many: {MOST_GPU_TYPES} types in all at most"
        )
    named = [resources.gpu_type]
    for word in resources.or_gpu_types:
        _check_type("resources.or_gpu_types", word)
        if word in named:
            raise refused("resources.or_gpu_types", f"GPU type {word} is named twice")
        named.append(word)


def _check_type(field: str, word: str) -> None:
    Passes(check_word, "GPU type").check(field, word)
    if word == CORE_TYPE:
        raise refused(field, f"{word} is no type of GPU: a job without GPUs says core_count")


def _check_mixed(spec: JobSpec) -> None:
    """InvalidRequest: a job on GPUs of several types takes leftovers, and can ask for
    nothing else.
    """
    asked = spec.resources
    if not asked.mixed_gpu_types:
        return
    others = {
        "a GPU type": bool(asked.gpu_type),
        "a number of nodes": asked.HasField("node_count"),
        "other sizes (elastic)": spec.HasField("elastic"),
        "workers and servers": spec.HasField("roles"),
    }
    for what, given in others.items():
        if given:
            raise refused(
                "resources.mixed_gpu_types",
                "a job that may lie on several GPU types at once names no "
                f"{what.removeprefix('a ')}",
            )


def _check_preempt(spec: JobSpec) -> None:
    preempt = spec.preempt
    if preempt.signal:
        OneOf(SIGNALS).check("preempt.signal", preempt.signal)
    if preempt.HasField("warning_duration"):
        check_span("preempt.warning_duration", preempt.warning_duration, 1, 7 * DAY)


def _check_checkpoint(spec: JobSpec) -> None:
    checkpoint, signal = spec.checkpoint, spec.checkpoint.save_signal
    if checkpoint.marker and not checkpoint.directory:
        raise refused("checkpoint.directory", "must say where the marker is looked for")
    if checkpoint.resume_from and (checkpoint.marker or not checkpoint.directory):
        why = "is for a job with a checkpoint directory, and without a marker"
        raise refused("checkpoint.resume_from", why)
    if signal and signal == (spec.preempt.signal or DEFAULT_SIGNAL):
        raise refused("checkpoint.save_signal", f"{signal} asks it to save and leave already")


def _check_compat(spec: JobSpec) -> None:
    if spec.HasField("tasks_per_node") and not spec.compat:
        raise refused("tasks_per_node", "means something only with compat")
    if spec.HasField("tasks") and not spec.compat:
        raise refused("tasks", "mean something only with compat")


def _check_launch(spec: JobSpec) -> None:
    if spec.launch == PER_GPU and spec.compat:
        raise refused("launch", "per-gpu is what compat does already: say one of them")


def _check_roles(spec: JobSpec) -> None:
    if not spec.HasField("roles"):
        return
    roles, resources = spec.roles, spec.resources
    if spec.compat or spec.launch == PER_GPU:
        raise refused("roles", "go neither with compat nor with launch = per-gpu")
    if not 1 <= roles.worker_count <= MOST_TASKS:
        raise refused("roles.worker_count", f"must be between 1 and {MOST_TASKS}")
    if not 0 <= roles.ps_count <= MOST_TASKS:
        raise refused("roles.ps_count", f"must be between 0 and {MOST_TASKS}")
    if resources.gpu_count % roles.worker_count:
        raise refused(
            "roles.worker_count",
            f"{resources.gpu_count} GPUs cannot be shared evenly by {roles.worker_count} workers",
        )
    if not resources.HasField("node_count"):
        if resources.gpu_count != roles.worker_count:
            raise refused("resources.node_count", "must be said for workers with several GPUs each")
        return
    if roles.worker_count % resources.node_count:
        raise refused(
            "roles.worker_count",
            f"{roles.worker_count} workers cannot be split evenly over {resources.node_count} "
            "nodes",
        )


def check_span(field: str, duration: Duration, least_s: float, most_s: float) -> float:
    """The duration in seconds. InvalidRequest: it is malformed, or beyond the limits."""
    Lasts(least_s, most_s).check(field, duration)
    return duration.seconds + duration.nanos / 1e9


def _check_interactive(spec: JobSpec) -> None:
    asked = spec.interactive
    terminal = asked.stdin == TERMINAL
    refusals = (
        ((asked.attended or asked.stdin) and spec.HasField("array"),
         "a client stays with one job; an array is many"),
        (asked.stdin not in ("", *STDINS), "the stdin of a job is a pipe or a terminal"),
        (asked.stdin and spec.HasField("elastic"),
         "an elastic job is run again on another size, and its stdin comes once"),
        (terminal and not asked.attended, "a terminal is for a job with a client that stays"),
        (terminal and (spec.launch == PER_GPU or spec.HasField("roles")),
         "a terminal is for a node with one process, not for several"),
    )  # fmt: skip
    for refuses, what in refusals:
        if refuses:
            raise InvalidRequest(what, field="spec.interactive")


def _check_origin(spec: JobSpec) -> None:
    origin = spec.origin
    told = {
        "script_path": origin.script_path,
        "command_line": origin.command_line,
        "host": origin.host,
    }
    for name, text in told.items():
        if len(text) > LONGEST_ORIGIN or not text.isprintable():
            what = f"must be one line of at most {LONGEST_ORIGIN} characters"
            raise refused(f"origin.{name}", what)
    if origin.session_number < 0:
        raise refused("origin.session_number", "must not be below 0")


def _check_hook_notes(spec: JobSpec) -> None:
    if spec.hook_notes:
        raise refused("hook_notes", "come from the master alone")


class Check(NamedTuple):
    """A check, and the fields of JobSpec that it needs; None: it always runs."""

    passes: Callable[[JobSpec], None]
    fields: frozenset[str] = frozenset()


def _of(check: Callable[[JobSpec], None], *fields: str) -> Check:
    return Check(check, frozenset(fields))


def _limits() -> Iterator[Check]:
    """The limits of single values, as the table of a job's fields declares them."""
    for field in FIELDS.values():
        if field.wire and field.limit:
            path = field.wire.path
            named = path if path.startswith("resources.") else path.partition(".")[0]
            yield _of(partial(_check_limit, field.wire, field.limit), named)


def _check_limit(wire: Plain[Any], limit: Limit, spec: JobSpec) -> None:
    if (said := wire.said(spec)) is not None:
        limit.check(wire.path, said)


# All checks of a spec, in the order in which they refuse.
CHECKS = (
    _of(_check_command),
    _of(_check_environment, "environment"),
    _of(_check_soft_limits, "soft_limits"),
    _of(check_labels, "labels"),
    _of(_check_compat, "tasks_per_node", "tasks"),
    *_limits(),
    _of(check_resources),
    _of(_check_preempt, "preempt"),
    _of(_check_checkpoint, "checkpoint"),
    _of(check_container, "container", "runtime"),
    _of(_check_launch, "launch"),
    _of(_check_roles, "roles"),
    _of(check_elastic, "elastic"),
    _of(_check_mixed, "resources"),
    _of(check_array, "array"),
    _of(lambda spec: check_dependency(spec.dependency), "dependency"),
    _of(lambda spec: check_begin(spec.begin_time), "begin_time"),
    _of(check_deadlines, "deadlines", "on_miss"),
    _of(check_lateness, "lateness"),
    _of(_check_interactive, "interactive"),
    _of(_check_origin, "origin"),
    _of(_check_hook_notes, "hook_notes"),
)


def _fill_in(spec: JobSpec) -> None:
    """Fill in the defaults of fields that are not set."""
    spec.name = named(spec)
    fill_in_terms(spec)


def fill_in_terms(spec: JobSpec) -> None:
    """The same for a spec without its program."""
    contained = spec.HasField("container")
    if not (spec.working_directory or contained):  # an empty one means the image's own
        spec.working_directory = DEFAULT_DIRECTORY
    if contained:
        spec.container.network = spec.container.network or NETWORKS[0]
    default = RUNTIME if contained else DEFAULT_RUNTIME
    spec.runtime = spec.runtime or default
    OneOf(RUNTIMES).check("runtime", spec.runtime)
    spec.preempt.signal = spec.preempt.signal or DEFAULT_SIGNAL


def named(spec: JobSpec) -> str:
    """The given name, or one made from the command, which is always valid."""
    if spec.name:
        return spec.name
    if spec.script:
        return "script"
    word = spec.command[0].rstrip("/").rsplit("/", 1)[-1]
    made = _NAME_JUNK.sub("_", word).lstrip("-.+=@:")[:64]
    return made or "job"
