"""Submissions: the words become a spec, and the spec a job or an array, at most once.

The key of a call is made before its first try, so a lost answer is asked for again. When the master
stays away the error has the key, because the job may be queued.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from dlq.v1 import job_pb2
from dlq_api.job import Job, JobArray, JobGroup
from dlq_api.line import ClusterLine
from dlq_api.words import Source, Text, layer_of, plain, spec_of
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


def submitted_group(
    line: ClusterLine, source: Text | Mapping[str, object], words: Words, request_id: str
) -> JobGroup:
    """A group with all its members."""
    from dlq_cli.commands.jobs.group import send_group
    from dlq_cli.jobs.source import read_source
    from dlq_cli.spec.group import members_of, read_group

    if isinstance(source, Mapping):
        members = members_of(plain(source), {}, "group")
    else:
        name = os.fspath(source)
        members = read_group(read_source(name), name)
    answer = send_group(line.app, members, layer_of(words), request_id=request_id)
    jobs = line.jobs.list(job_ids=[job.job_id for job in answer.jobs]).jobs
    return JobGroup(line, answer.group_id, jobs)


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
