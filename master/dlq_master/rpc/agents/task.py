"""The spec of one launched task: its place in its array, and its own paths."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dlq.v1.job_pb2 import JobSpec
from dlq_master.control.stimuli import Launch

_PATTERN = re.compile(r"%([%Aajxu])")


def fit_to_task(spec: JobSpec, launch: Launch) -> None:
    """Change the spec of a launch for the node, which needs no arrays, and durations
    for instants.
    """
    for name in ("array", "dependency", "begin_time"):
        spec.ClearField(name)
    spec.environment.update(array_environment(launch))
    spec.environment.update(group_environment(launch))
    if launch.check:
        spec.environment["DLQ_CHECK"] = launch.check
    spec.working_directory = filled(spec.working_directory, launch)
    spec.checkpoint.directory = filled(spec.checkpoint.directory, launch)
    spec.checkpoint.marker = filled(spec.checkpoint.marker, launch)


def array_environment(launch: Launch) -> Mapping[str, str]:
    """The environment of a task about its array: Slurm's names with our prefix."""
    array = launch.array
    if array is None or array.members:
        return {}
    return {
        "DLQ_ARRAY_JOB_ID": str(array.array_id),
        "DLQ_ARRAY_TASK_ID": str(launch.array_index),
        "DLQ_ARRAY_TASK_COUNT": str(array.tasks),
        "DLQ_ARRAY_TASK_MIN": str(array.first),
        "DLQ_ARRAY_TASK_MAX": str(array.last),
        "DLQ_ARRAY_TASK_STEP": str(array.step),
    }


def group_environment(launch: Launch) -> Mapping[str, str]:
    """The environment of a member about its group: its name, and the addresses of all members."""
    array = launch.array
    if array is None or not array.members:
        return {}
    member, number = array.member(launch.array_index)
    return {
        "DLQ_GROUP_ID": str(array.array_id),
        "DLQ_GROUP_MEMBER": member.name,
        "DLQ_GROUP_INDEX": str(number),
        "DLQ_GROUP_MEMBERS": ",".join(f"{it.name}:{it.jobs}" for it in array.members),
        **{
            f"DLQ_GROUP_ADDRESSES_{name.replace('-', '_').upper()}": ",".join(addresses)
            for name, addresses in launch.peers
        },
    }


def filled(path: str, launch: Launch) -> str:
    """A path with %j (job), %A (array, or job), %a (index), %x (name), %u (user) and %% filled in.

    None of them can hold a slash, so the path stays below what its user wrote.
    """
    array = launch.array
    words = {
        "%": "%",
        "j": str(launch.key.job_id),
        "A": str(launch.key.job_id if array is None else array.array_id),
        "a": str(launch.array_index) if array is not None else "0",
        "x": launch.name,
        "u": launch.user,
    }
    return _PATTERN.sub(lambda match: words[match[1]], path)
