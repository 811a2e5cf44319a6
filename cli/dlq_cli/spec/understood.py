"""The understanding of a spec as text for people; each part names its place in the source."""

from __future__ import annotations

from collections.abc import Iterator

from dlq_cli.output.render import facts
from dlq_cli.spec.validate import Spec
from dlq_cli.spec.values.elastic import elastic_text, told_to
from dlq_common.job_fields.reading.deadlines import FULL, DeadlineText, deadlines_text
from dlq_common.job_fields.table import FIELDS
from dlq_common.job_fields.table.checkpoints import GRACE, SIGNAL_TO
from dlq_common.job_fields.table.gang import COMPAT, SERVERS, TASKS_PER_NODE, WORKERS
from dlq_common.job_fields.table.gpus import EXCLUDE, GPU_MEMORY, HALVE_BATCH, NODELIST
from dlq_common.job_fields.table.job import WORKDIR
from dlq_common.text.arrays import expand, format_indexes
from dlq_common.text.hostlist import compress_hostlist
from dlq_common.text.units import approximate_size, format_duration

# The lines in the order in which they are read; lines of later fields follow.
_ORDER = (
    "name", "command", "queue", "gpus", "elastic", "cpus", "memory", "gpu memory", "gpu types",
    "time limit", "work", "deadline", "on miss", "due", "steps", "image", "mounts", "directory",
    "environment", "signal", "signal to", "grace", "checkpoints", "marker", "compat", "launch",
    "roles", "restarts", "hold", "profile", "array", "depends on", "nice", "warning", "save signal",
    "begin",
)  # fmt: skip

_WIDTH = ("resources.gpus_total", "resources.gpus", "resources.cores")

Row = tuple[str, str, str | None]  # label, value, where it was said


def understood(spec: Spec) -> str:
    """The spec as dlq understands it, with the place of each part."""
    rows = sorted((*_plain(spec), *_composed(spec)), key=_place)
    return facts(
        (name, f"{value}  ({where or 'default'})" if value else "") for name, value, where in rows
    )


def _place(row: Row) -> int:
    return _ORDER.index(row[0]) if row[0] in _ORDER else len(_ORDER)


def _plain(spec: Spec) -> Iterator[Row]:
    """Fields whose value the table prints."""
    for field in FIELDS.values():
        if field.label:
            value = spec.of(field)
            told = field.default if value is None else field.text(value)
            yield field.label, told, _said(spec, field.key)


def _said(spec: Spec, *keys: str) -> str | None:
    return next(filter(None, map(spec.origins.get, keys)), None)


def _composed(spec: Spec) -> Iterator[Row]:
    """Rows made of several fields together, or of messages."""
    resize = spec.elastic.resize if spec.elastic else ""
    grace_s = spec.of(GRACE)
    yield "command", _command(spec), _said(spec, "command", "run")
    yield "gpus", _gpus(spec), _said(spec, *_WIDTH)
    yield "elastic", elastic_text(spec.elastic), _said(spec, "elastic.gpus", "elastic.sizes")
    yield "gpu memory", _gpu_memory(spec), _said(spec, "resources.gpu_memory")
    yield "deadline", deadlines_text(spec.deadlines), _said(spec, "deadline", "soft_deadline")
    yield "due", _late(spec), _said(spec, "due")
    yield "mounts", ", ".join(map(str, spec.mounts)), None
    yield "directory", spec.of(WORKDIR) or "the image's", _said(spec, "workdir")
    variables = ", ".join(sorted(spec.environment)) or "nothing of your shell"
    yield "environment", variables, ", ".join(dict.fromkeys(filter(None, _variables(spec))))
    yield "signal", spec.signal or "TERM", _said(spec, "preempt.signal")
    told = told_to(spec.of(SIGNAL_TO) or "", resize)
    yield "signal to", told, _said(spec, "preempt.signal_to")
    ahead = ("preempt.signal",) if grace_s else ()
    grace = format_duration(grace_s) if grace_s else "auto"
    yield "grace", grace, _said(spec, "preempt.grace", *ahead)
    yield "compat", _compat(spec), _said(spec, "compat")
    yield "roles", _roles(spec), _said(spec, "roles.workers")
    yield "array", _array(spec), _said(spec, "array")
    yield "depends on", _dependency(spec), _said(spec, "depends_on")
    warning = f"{spec.warning_s} s before the time limit" if spec.warning_s else ""
    yield "warning", warning, _said(spec, "preempt.signal")
    yield "begin", spec.begin or "", _said(spec, "begin")


def _gpu_memory(spec: Spec) -> str:
    size_bytes = spec.of(GPU_MEMORY)
    if size_bytes is None:
        return ""
    size = approximate_size(size_bytes)
    return f"{size}, or half of it by half the batch" if spec.of(HALVE_BATCH) else size


def _compat(spec: Spec) -> str:
    compat, number = spec.of(COMPAT), spec.of(TASKS_PER_NODE)
    tasks = f"{number} on each node" if number else "one for each GPU"
    return f"{compat}, tasks: {tasks}" if compat else ""


def _roles(spec: Spec) -> str:
    workers, servers = spec.of(WORKERS), spec.of(SERVERS)
    return f"workers: {workers}, parameter servers: {servers or 0}" if workers else ""


def _array(spec: Spec) -> str:
    if spec.array is None:
        return ""
    indexes = expand(spec.array.ranges)
    limit = f", {spec.array.concurrent} at a time" if spec.array.concurrent else ""
    return f"{len(indexes)} tasks: {format_indexes(indexes)}{limit}"


def _dependency(spec: Spec) -> str:
    if spec.depends_on is None:
        return ""
    words = [str(term) for term in spec.depends_on.terms]
    return (" or " if spec.depends_on.any else " and ").join(words)


def _variables(spec: Spec) -> list[str | None]:
    """The place of each variable."""
    return [spec.origins.get(f"env.{name}") for name in sorted(spec.environment)]


def _command(spec: Spec) -> str:
    if spec.script is None:
        return " ".join(spec.command)
    interpreter = spec.script.partition("\n")[0].removeprefix("#!").strip()
    return " ".join([interpreter, f"({len(spec.script)} characters)", *spec.command])


def _gpus(spec: Spec) -> str:
    kind = f" {' or '.join(spec.gpu_types)}" if spec.gpu_types else ""
    which = _which(spec)
    if spec.core_count:
        return _cores(spec, which)
    if not spec.gpu_count:
        return f"as many{kind} of one node as are worth it{which}"
    if spec.node_count is None:
        return f"{spec.gpu_count}{kind} on any nodes{which}"
    nodes = "node" if spec.node_count == 1 else "nodes"
    return f"{spec.gpu_count}{kind} on {spec.node_count} {nodes}{which}"


def _cores(spec: Spec, which: str) -> str:
    cores = "1 core" if spec.core_count == 1 else f"{spec.core_count} cores"
    if spec.node_count is None:
        return f"none, {cores} on any nodes{which}"
    nodes = "node" if spec.node_count == 1 else "nodes"
    return f"none, {cores} on {spec.node_count} {nodes}{which}"


def _which(spec: Spec) -> str:
    """The named nodes, if they are not all."""
    among, exclude = spec.of(NODELIST), spec.of(EXCLUDE)
    choices = [
        *([f"with {' and '.join(spec.constraint)}"] if spec.constraint else []),
        *([f"among {compress_hostlist(among)}"] if among else []),
        *([f"not {compress_hostlist(exclude)}"] if exclude else []),
    ]
    return " " + ", ".join(choices) if choices else ""


def _late(spec: Spec) -> str:
    if spec.lateness is None:
        return ""
    due = deadlines_text((DeadlineText(spec.lateness.due, FULL),))
    return f"{due}, then {spec.lateness.weight_per_hour:g} an hour"
