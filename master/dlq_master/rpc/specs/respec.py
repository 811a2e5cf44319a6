"""Another spec for a waiting job: the old one with some parts changed, checked like a new one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any, Final, TypedDict

from dlq.v1.job_pb2 import JobSpec
from dlq.v1.job_service_pb2 import SpecChange
from dlq_common.errors import InvalidRequest
from dlq_common.job_fields.limits import refused
from dlq_common.job_fields.table import FIELDS
from dlq_common.text.hostlist import compress_hostlist
from dlq_master.control.stimuli import FieldChange, Respec
from dlq_master.model.jobs.job import Job
from dlq_master.model.jobs.naming import shown_id
from dlq_master.rpc.specs.intake import request_of
from dlq_master.rpc.specs.node_choice import check_choice, labels_of, nodes_of
from dlq_master.rpc.specs.spec import MOST_GPUS, check_labels, check_resources

# Each task of an array keeps a changed spec of its own.
LARGEST_OF_A_TASK: Final = 64 * 1024
LONGEST_TOLD: Final = 4096  # a path, or a list of nodes that is cut


class Respecified(TypedDict):
    """The fields of an update that changes a spec."""

    spec_change: str
    respec: Respec


def respecified(asked: SpecChange, spec: bytes, job: Job) -> Respecified:
    """The changed spec of a job. InvalidRequest names the field that makes no sense."""
    if job.array is not None and len(spec) > LARGEST_OF_A_TASK:
        raise InvalidRequest(
            f"job {shown_id(job)} is a task of an array with a large script: its spec stays",
            field="spec_change",
        )
    before, after = JobSpec.FromString(spec), JobSpec.FromString(spec)
    _change(after, asked)
    if asked.HasField("node_count"):
        _resize(after, asked, job)
    _check(after, asked)
    choice, stored = after.resources, after.SerializeToString(deterministic=True)
    if job.array is not None and len(stored) > LARGEST_OF_A_TASK:
        raise InvalidRequest(
            f"the spec of job {shown_id(job)} would have {len(stored)} bytes; that of a task of an "
            f"array has {LARGEST_OF_A_TASK} at most: name fewer nodes",
            field="spec_change",
        )
    respec = Respec(
        spec=stored,
        seen_version=job.version,
        changes=tuple(_changes(before, after)),
        constraint=labels_of(choice.constraint, "resources.constraint"),
        among=nodes_of(choice.node_ids),
        not_among=nodes_of(choice.excluded_node_ids),
        once=after.no_requeue,
        sized=request_of(after) if asked.HasField("node_count") else None,
    )
    digest = hashlib.sha256(asked.SerializeToString(deterministic=True)).hexdigest()[:32]
    return {"spec_change": digest, "respec": respec}


def _change(spec: JobSpec, asked: SpecChange) -> None:
    if asked.HasField("working_directory"):
        spec.working_directory = asked.working_directory
    if asked.HasField("stdout_path"):
        spec.output.stdout_path = asked.stdout_path
    if asked.HasField("no_requeue"):
        spec.no_requeue = asked.no_requeue
    for name, text in asked.labels.items():
        if text:
            spec.labels[name] = text
        else:
            spec.labels.pop(name, None)
    if asked.HasField("nodes"):
        spec.resources.node_ids[:] = sorted(set(asked.nodes.node_ids))
    if asked.HasField("excluded_nodes"):
        spec.resources.excluded_node_ids[:] = sorted(set(asked.excluded_nodes.node_ids))
    if asked.HasField("constraint"):
        spec.resources.constraint.clear()
        spec.resources.constraint.update(asked.constraint.labels)


def _resize(spec: JobSpec, asked: SpecChange, job: Job) -> None:
    """Give it another number of nodes. Tasks that were counted stay as many, unless each node has
    a number of them.
    """
    resources, tasks, nodes = spec.resources, spec.tasks, asked.node_count
    if job.group is not None or spec.HasField("elastic") or spec.HasField("roles"):
        raise InvalidRequest(
            f"job {shown_id(job)} is elastic, has roles or is in a group: its nodes stay",
            field="spec_change.node_count",
        )
    if nodes < 1 or nodes > MOST_GPUS:
        raise refused("resources.node_count", f"must be between 1 and {MOST_GPUS}")
    before = resources.node_count or 1
    resources.node_count = nodes
    if spec.tasks_per_node and tasks.task_count and not tasks.implied:
        tasks.task_count = spec.tasks_per_node * nodes
    elif tasks.cpus_per_task and resources.HasField("cpu_limit"):
        share = -(-(tasks.task_count or nodes) // nodes)
        resources.cpu_limit = share * tasks.cpus_per_task
    if not asked.keeps_totals:
        resources.gpu_count = resources.gpu_count // before * nodes
        resources.core_count = resources.core_count // before * nodes
    check_resources(spec)


def _check(spec: JobSpec, asked: SpecChange) -> None:
    for name, path, value in (
        ("workdir", "working_directory", spec.working_directory),
        ("output.stdout", "output.stdout_path", spec.output.stdout_path),
    ):
        limit = FIELDS[name].limit
        if limit is not None and asked.HasField(path.rpartition(".")[2]):  # type: ignore[arg-type]
            if not value:
                raise refused(path, "is empty")
            limit.check(path, value)
    check_labels(spec)
    check_choice(spec.resources)


def _changes(before: JobSpec, after: JobSpec) -> Iterator[FieldChange]:
    for name, text in _TEXTS.items():
        old, new = text(before), text(after)
        if old != new:
            yield FieldChange(name, _short(old), _short(new))
    for label in sorted({*before.labels, *after.labels}):
        old, new = before.labels.get(label, "none"), after.labels.get(label, "none")
        if old != new:
            yield FieldChange(f"label {label}", old, new)


def _short(text: str) -> str:
    """For the journal, which has a line for each of 10,000 tasks."""
    return text if len(text) <= LONGEST_TOLD else f"{text[: LONGEST_TOLD - 3]}..."


def _named(names: Any) -> str:
    return compress_hostlist(list(names)) or "none"


def _sizes(spec: JobSpec) -> str:
    asked = spec.resources
    what = f"{asked.core_count} cores" if asked.core_count else f"{asked.gpu_count} GPUs"
    return f"{what} on {asked.node_count or 'any'} nodes"


_TEXTS: dict[str, Callable[[JobSpec], str]] = {
    "nodes": _sizes,
    "workdir": lambda spec: spec.working_directory,
    "output": lambda spec: spec.output.stdout_path or "none",
    "requeue": lambda spec: "no" if spec.no_requeue else "yes",
    "nodelist": lambda spec: _named(spec.resources.node_ids),
    "exclude": lambda spec: _named(spec.resources.excluded_node_ids),
    "constraint": lambda spec: (
        ",".join(labels_of(spec.resources.constraint, "constraint")) or "none"
    ),
}
