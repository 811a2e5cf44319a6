"""What a spec was taken to mean, as text for people, each part with the place where it was said."""

from __future__ import annotations

from dlq_cli.output.render import facts
from dlq_cli.spec.validate import Spec
from dlq_cli.spec.values.deadlines import FULL, DeadlineText, deadlines_text
from dlq_cli.spec.values.elastic import elastic_text, told_to
from dlq_common.text.arrays import expand, format_indexes
from dlq_common.text.hostlist import compress_hostlist
from dlq_common.text.units import approximate_size, format_duration


def understood(spec: Spec) -> str:
    """What a spec was taken to mean, and where each part was said."""
    origin = spec.origins.get
    rows = (
        ("name", spec.name, origin("name")),
        ("command", _command(spec), origin("command") or origin("run")),
        ("queue", spec.queue or "the cluster's", origin("queue")),
        ("gpus", _gpus(spec), origin("resources.gpus_total") or origin("resources.gpus")),
        (
            "elastic",
            elastic_text(spec.elastic),
            origin("elastic.gpus") or origin("elastic.sizes"),
        ),
        (
            "cpus",
            f"{spec.cpu_limit:g} on each node" if spec.cpu_limit else "",
            origin("resources.cpus"),
        ),
        (
            "memory",
            f"{approximate_size(spec.memory_limit_bytes)} ({spec.memory_limit_bytes} bytes) on "
            "each node"
            if spec.memory_limit_bytes
            else "",
            origin("resources.memory"),
        ),
        ("gpu memory", _gpu_memory(spec), origin("resources.gpu_memory")),
        ("gpu types", "several at once" if spec.mixed_gpus else "", origin("resources.mixed_gpus")),
        (
            "time limit",
            format_duration(spec.time_limit_s) if spec.time_limit_s else "none",
            origin("time_limit"),
        ),
        (
            "work",
            format_duration(spec.run_estimate_s) if spec.run_estimate_s else "",
            origin("estimate"),
        ),
        (
            "deadline",
            deadlines_text(spec.deadlines),
            origin("deadline") or origin("soft_deadline"),
        ),
        ("on miss", spec.on_miss, origin("on_miss")),
        ("due", _late(spec), origin("due")),
        ("steps", str(spec.step_count or ""), origin("steps")),
        ("image", spec.container.image if spec.container else "", origin("image")),
        ("mounts", _mounts(spec), ""),
        ("directory", spec.working_directory or "the image's", origin("workdir")),
        (
            "environment",
            ", ".join(sorted(spec.environment)) or "nothing of your shell",
            ", ".join(dict.fromkeys(filter(None, map(origin, _variables(spec))))),
        ),
        ("signal", spec.signal or "TERM", origin("preempt.signal")),
        (
            "signal to",
            told_to(spec.signal_to, spec.elastic.resize if spec.elastic else ""),
            origin("preempt.signal_to"),
        ),
        (
            "grace",
            format_duration(spec.grace_s) if spec.grace_s else "auto",
            origin("preempt.grace") or (spec.grace_s and origin("preempt.signal")),
        ),
        (
            "checkpoints",
            spec.checkpoint_directory or "the cluster's place",
            origin("checkpoint.dir"),
        ),
        ("marker", spec.checkpoint_marker or "", origin("checkpoint.marker")),
        ("compat", _compat(spec), origin("compat")),
        ("launch", spec.launch, origin("launch")),
        ("roles", _roles(spec), origin("roles.workers")),
        ("restarts", str(spec.max_restart_count), origin("retry.max_restarts")),
        ("hold", "yes" if spec.hold else "", origin("hold")),
        ("profile", spec.profile, origin("profile")),
        ("array", _array(spec), origin("array")),
        ("depends on", _dependency(spec), origin("depends_on")),
        ("nice", str(spec.nice) if spec.nice else "", origin("nice")),
        (
            "warning",
            f"{spec.warning_s} s before the time limit" if spec.warning_s else "",
            origin("preempt.signal"),
        ),
        ("save signal", spec.save_signal or "", origin("checkpoint.save_signal")),
        ("begin", spec.begin or "", origin("begin")),
    )
    return facts(
        (name, f"{value}  ({where or 'default'})" if value else "") for name, value, where in rows
    )


def _gpu_memory(spec: Spec) -> str:
    if spec.gpu_memory_bytes is None:
        return ""
    size = approximate_size(spec.gpu_memory_bytes)
    return f"{size}, or half of it by half the batch" if spec.halves_batch else size


def _compat(spec: Spec) -> str:
    tasks = f"{spec.tasks_per_node} on each node" if spec.tasks_per_node else "one for each GPU"
    return f"{spec.compat}, tasks: {tasks}" if spec.compat else ""


def _roles(spec: Spec) -> str:
    if spec.roles is None:
        return ""
    return f"workers: {spec.roles.workers}, parameter servers: {spec.roles.servers}"


def _array(spec: Spec) -> str:
    if spec.array is None:
        return ""
    indexes = expand(spec.array.ranges)
    limit = f", {spec.array.concurrent} at a time" if spec.array.concurrent else ""
    return f"{len(indexes)} tasks: {format_indexes(indexes)}{limit}"


def _dependency(spec: Spec) -> str:
    if spec.depends_on is None:
        return ""
    words = [":".join(filter(None, term)) for term in spec.depends_on.terms]
    return (" or " if spec.depends_on.any else " and ").join(words)


def _variables(spec: Spec) -> list[str]:
    """The keys of the environment, as origins know them."""
    return [f"env.{name}" for name in sorted(spec.environment)]


def _mounts(spec: Spec) -> str:
    return ", ".join(map(str, spec.container.mounts)) if spec.container else ""


def _command(spec: Spec) -> str:
    if spec.script is None:
        return " ".join(spec.command)
    interpreter = spec.script.partition("\n")[0].removeprefix("#!").strip()
    return " ".join([interpreter, f"({len(spec.script)} characters)", *spec.command])


def _gpus(spec: Spec) -> str:
    kind = f" {' or '.join(spec.gpu_types)}" if spec.gpu_types else ""
    which = _which(spec)
    if not spec.gpu_count:
        return f"as many{kind} of one node as are worth it{which}"
    if spec.node_count is None:
        return f"{spec.gpu_count}{kind} on any nodes{which}"
    nodes = "node" if spec.node_count == 1 else "nodes"
    return f"{spec.gpu_count}{kind} on {spec.node_count} {nodes}{which}"


def _which(spec: Spec) -> str:
    """Of which nodes, if that is not all of them."""
    choices = [
        *([f"with {' and '.join(spec.constraint)}"] if spec.constraint else []),
        *([f"among {compress_hostlist(spec.nodelist)}"] if spec.nodelist else []),
        *([f"not {compress_hostlist(spec.exclude)}"] if spec.exclude else []),
    ]
    return " " + ", ".join(choices) if choices else ""


def _late(spec: Spec) -> str:
    if spec.lateness is None:
        return ""
    due = deadlines_text((DeadlineText(spec.lateness.due, FULL),))
    return f"{due}, then {spec.lateness.weight_per_hour:g} an hour"
