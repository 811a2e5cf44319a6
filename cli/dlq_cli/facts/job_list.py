"""Many jobs as one JSON document, the same as of `job_facts` of each.

Of thousands of jobs most differ from one another by their ids, names and times alone. So the text
of a job is made once for all that are otherwise equal on the wire, with holes for its own values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache

from google.protobuf.timestamp_pb2 import Timestamp

from dlq.v1 import job_pb2
from dlq_cli.facts.common import SCHEMA
from dlq_cli.facts.job import job_facts, range_facts
from dlq_common.text.instants import format_instant

MOST_SHAPES = 1_000

_text = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def jobs_document(jobs: Sequence[job_pb2.Job], total: int) -> str:
    """`document` of the facts of these jobs, which are all of `total`, or its first ones."""
    shapes: dict[bytes, list[str]] = {}
    parts = [f'{{"schema":{_text(SCHEMA)},"jobs":[']
    for job in jobs:
        parts += _parts(job, shapes)
    if jobs:
        parts[-1] = parts[-1].removesuffix(",")
    return "".join((*parts, f'],"total":{total}}}'))


def _parts(job: job_pb2.Job, shapes: dict[bytes, list[str]]) -> list[str]:
    """Its text and a comma; valid until the next job of the same shape."""
    key = _shape(job)
    parts = shapes.get(key)
    if parts is None:
        if len(shapes) >= MOST_SHAPES:
            shapes.clear()
        parts = shapes[key] = _with_holes(job)
    parts[1::2] = [value(job) for value in _OWN.values()]
    return parts


def _shape(job: job_pb2.Job) -> bytes:
    """All of a job but for what is its own."""
    rest = job_pb2.Job()
    rest.CopyFrom(job)
    rest.ClearField("job_id")
    rest.ClearField("name")
    rest.ClearField("submit_time")
    rest.ClearField("queue_time")
    rest.ClearField("start_estimate")
    if rest.HasField("array_task"):
        rest.array_task.index = 0
    return rest.SerializeToString()


def _with_holes(job: job_pb2.Job) -> list[str]:
    """The text of a job in parts; each second one is a hole for a value of its own."""
    parts = ["{"]
    for key, value in job_facts(job).items():
        parts[-1] += f"{_text(key)}:"
        if key in _OWN:
            parts += ("", ",")
        else:
            parts[-1] += f"{_text(value)},"
    parts[-1] = parts[-1].removesuffix(",") + "},"
    return parts


def _instant(stamp: Timestamp) -> str:
    return _quoted(stamp.seconds, stamp.nanos)


@lru_cache(64)  # most jobs are queued as soon as they are submitted
def _quoted(seconds: int, nanos: int) -> str:
    return f'"{format_instant(seconds + nanos / 1e9)}"'


def _name(job: job_pb2.Job) -> str:
    return "null" if job.redacted else _text(job.name)


def _submitted(job: job_pb2.Job) -> str:
    return _instant(job.submit_time) if job.HasField("submit_time") else "null"


def _queued(job: job_pb2.Job) -> str:
    return _instant(job.queue_time) if job.HasField("queue_time") else "null"


def _start_range(job: job_pb2.Job) -> str:
    return _text(range_facts(job.start_estimate)) if job.HasField("start_estimate") else "null"


def _task(job: job_pb2.Job) -> str:
    return str(job.array_task.index) if job.HasField("array_task") else "null"


# In the order of the facts; `_shape` lacks them.
_OWN: dict[str, Callable[[job_pb2.Job], str]] = {
    "job_id": lambda job: _text(job.job_id),
    "array_task_id": _task,
    "name": _name,
    "submit_time": _submitted,
    "queue_time": _queued,
    "start_estimate": _start_range,
}
