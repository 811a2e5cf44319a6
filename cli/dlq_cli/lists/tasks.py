"""Tasks of arrays as people see them: `12_4`, and many of them that wait as one line
`12_[4-99%4]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from dlq.v1 import job_pb2
from dlq_cli.words import shown_state
from dlq_common.text.arrays import format_indexes

# In these a task has nothing that tells it from its neighbours.
FOLDED = frozenset({"pending", "queued", "held"})


def shown_id(job: job_pb2.Job) -> str:
    """`17`; of a task `12_4`, of a line that stands for many `12_[4-99]`."""
    if not job.HasField("array_task") or not job.job_id.isdecimal():
        return job.job_id
    return f"{job.array_task.array_id}_{job.array_task.index}"


def id_key(job: job_pb2.Job) -> tuple[int, int]:
    """The key that sorts jobs by their ids."""
    if job.HasField("array_task"):
        return int(job.array_task.array_id), job.array_task.index
    return int(job.job_id or 0), 0


def shown_ids(jobs: Iterable[job_pb2.Job]) -> str:
    """Several jobs in as few words as possible: `17, 12_[0-3,7]`."""
    words: dict[str, list[int]] = {}
    for job in jobs:
        if job.HasField("array_task"):
            words.setdefault(job.array_task.array_id, []).append(job.array_task.index)
        else:
            words[job.job_id] = []
    return ", ".join(_named(name, sorted(indexes)) for name, indexes in words.items())


def folded(
    jobs: Sequence[job_pb2.Job], written: Callable[[Sequence[int], int], str] | None = None
) -> list[job_pb2.Job]:
    """The jobs, with one that stands for all tasks of an array that wait in the same state.

    `written`: another text for their indexes and their limit, also of a single one. Tasks that have
    run before are lines of their own then, as in Slurm.
    """
    groups: dict[tuple[str, str], list[job_pb2.Job]] = {}
    lines: list[job_pb2.Job] = []
    for job in jobs:
        alone = written is not None and job.attempt_count > 0
        if not job.HasField("array_task") or (state := shown_state(job)) not in FOLDED or alone:
            lines.append(job)
            continue
        group = groups.setdefault((job.array_task.array_id, state), [])
        if not group:
            line = job_pb2.Job()
            line.CopyFrom(job)
            lines.append(line)
        group.append(job)
    for line in lines if groups else ():
        group = groups.get((line.array_task.array_id, shown_state(line)), [])
        if len(group) > 1 or (group and written is not None and line == group[0]):
            line.job_id = _line_id(group, written or _indexes)
    return lines


def _line_id(tasks: Sequence[job_pb2.Job], written: Callable[[Sequence[int], int], str]) -> str:
    place = tasks[0].array_task
    indexes = sorted(task.array_task.index for task in tasks)
    return f"{place.array_id}_[{written(indexes, place.concurrent_count)}]"


def _indexes(indexes: Sequence[int], limit: int) -> str:
    return format_indexes(indexes) + (f"%{limit}" if limit else "")


def _named(name: str, indexes: list[int]) -> str:
    if len(indexes) > 1:
        return f"{name}_[{format_indexes(indexes)}]"
    return f"{name}_{indexes[0]}" if indexes else name
