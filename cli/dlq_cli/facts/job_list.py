"""Many jobs as one JSON document, the same as of `job_facts` of each.

Of thousands of jobs most differ from one another by their ids, names and times alone. So the text
of a job is made once for all that are otherwise equal on the wire, with holes for its own values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from google.protobuf.timestamp_pb2 import Timestamp

from dlq.v1 import job_pb2
from dlq_cli.facts.common import SCHEMA, instant
from dlq_cli.facts.job import job_facts, range_facts

MOST_SHAPES = 1_000

_text = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def jobs_document(jobs: Sequence[job_pb2.Job]) -> str:
    """`document` of the facts of these jobs."""
    shapes: dict[bytes, str] = {}
    texts = ",".join([_job_text(job, shapes) for job in jobs])
    return f'{{"schema":{_text(SCHEMA)},"jobs":[{texts}]}}'


def _job_text(job: job_pb2.Job, shapes: dict[bytes, str]) -> str:
    own = tuple([value(job) for value in _OWN.values()])
    key = _shape(job)
    text = shapes.get(key)
    if text is None:
        if len(shapes) >= MOST_SHAPES:
            shapes.clear()
        text = shapes[key] = _with_holes(job)
    return text % own


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


def _with_holes(job: job_pb2.Job) -> str:
    """The text of a job, with `%s` for each value of its own."""
    members = [
        f"{_text(key)}:".replace("%", "%%")
        + ("%s" if key in _OWN else _text(value).replace("%", "%%"))
        for key, value in job_facts(job).items()
    ]
    return "{" + ",".join(members) + "}"


def _instant(stamp: Timestamp) -> str:
    return f'"{instant(stamp)}"'


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
