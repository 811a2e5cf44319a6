"""Another spec for a job that waits: the old one with some of its parts changed, and checked like
a new one.
"""

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
from dlq_master.rpc.specs.node_choice import check_choice, labels_of, nodes_of
from dlq_master.rpc.specs.spec import check_labels

# Each task of an array keeps a changed spec of its own.
LARGEST_OF_A_TASK: Final = 64 * 1024


class Respecified(TypedDict):
    """The fields of an update that changes a spec."""

    spec_change: str
    respec: Respec


def respecified(asked: SpecChange, spec: bytes, job: Job) -> Respecified:
    """The changed spec of a job. InvalidRequest names the field that cannot be meant."""
    if job.array is not None and len(spec) > LARGEST_OF_A_TASK:
        raise InvalidRequest(
            f"job {shown_id(job)} is a task of an array with a large script: its spec stays",
            field="spec_change",
        )
    before, after = JobSpec.FromString(spec), JobSpec.FromString(spec)
    _change(after, asked)
    _check(after, asked)
    choice = after.resources
    respec = Respec(
        spec=after.SerializeToString(deterministic=True),
        seen_version=job.version,
        changes=tuple(_changes(before, after)),
        constraint=labels_of(choice.constraint, "resources.constraint"),
        among=nodes_of(choice.node_ids),
        not_among=nodes_of(choice.excluded_node_ids),
        once=after.no_requeue,
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
            yield FieldChange(name, old, new)
    for label in sorted({*before.labels, *after.labels}):
        old, new = before.labels.get(label, "none"), after.labels.get(label, "none")
        if old != new:
            yield FieldChange(f"label {label}", old, new)


def _named(names: Any) -> str:
    return compress_hostlist(list(names)) or "none"


_TEXTS: dict[str, Callable[[JobSpec], str]] = {
    "workdir": lambda spec: spec.working_directory,
    "output": lambda spec: spec.output.stdout_path or "none",
    "requeue": lambda spec: "no" if spec.no_requeue else "yes",
    "nodelist": lambda spec: _named(spec.resources.node_ids),
    "exclude": lambda spec: _named(spec.resources.excluded_node_ids),
    "constraint": lambda spec: (
        ",".join(labels_of(spec.resources.constraint, "constraint")) or "none"
    ),
}
