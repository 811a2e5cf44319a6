"""Submissions: the words become a spec, and the spec a job or an array, at most once.

The key of a call is made before its first try, so a lost answer is asked for again. When the master
stays away the error has the key, because the job may be queued.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlq.v1 import job_pb2
from dlq_api.job import Job, JobArray
from dlq_api.line import ClusterLine
from dlq_api.words import Source, Text, spec_of
from dlq_cli.spec.message import to_message
from dlq_common.errors import InvalidRequest

Words = Mapping[str, object]


def submitted(
    line: ClusterLine, source: Source, arguments: Sequence[Text], words: Words, request_id: str
) -> Job:
    """One job."""
    return Job(line, _sent(line, source, arguments, words, request_id, array=False))


def submitted_array(
    line: ClusterLine, source: Source, arguments: Sequence[Text], words: Words, request_id: str
) -> JobArray:
    """An array with all its tasks."""
    first = _sent(line, source, arguments, words, request_id, array=True)
    array_id = first.array_task.array_id
    return JobArray(line, array_id, line.jobs.list(job_ids=[array_id]).jobs)


def _sent(
    line: ClusterLine,
    source: Source,
    arguments: Sequence[Text],
    words: Words,
    request_id: str,
    *,
    array: bool,
) -> job_pb2.Job:
    from dlq_cli.commands.jobs.submitted import send_spec  # programs that only look pay nothing

    spec, notes = spec_of(source, arguments, words)
    if array != (spec.array is not None):
        wanted, other = ("an array", "submit") if array else ("one job", "submit_array")
        raise InvalidRequest(f"array: this is not {wanted}; use {other}", field="array")
    for note in notes:
        line.say(note)
    return send_spec(line.app, spec, to_message(spec), "", request_id=request_id).job
