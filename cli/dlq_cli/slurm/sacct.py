"""`sacct`: what became of jobs, in Slurm's columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import click
from google.protobuf.timestamp_pb2 import Timestamp

from dlq.v1 import job_pb2
from dlq_cli.app import App
from dlq_cli.select import several_jobs
from dlq_cli.slurm.words import Grammar, Words, read
from dlq_cli.slurm_states import account_state, code, wanted
from dlq_cli.tasks import id_key, shown_id
from dlq_client.jobs import Jobs
from dlq_common.errors import InvalidRequest, NotFound
from dlq_common.hostlist import compress_hostlist
from dlq_common.units import format_duration
from dlq_common.wire import from_duration, from_timestamp

DEFAULT = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
GRAMMAR = Grammar(
    "sacct",
    {
        "j": "jobs", "o": "format", "u": "user", "n": "noheader", "P": "parsable2",
        "p": "parsable", "X": "allocations", "S": "starttime", "E": "endtime", "s": "state",
        "D": "duplicates", "a": "allusers", "r": "partition",
    },
    frozenset({"jobs", "format", "user", "starttime", "endtime", "state", "partition", "name"}),
    frozenset({"noheader", "parsable", "parsable2", "allocations", "duplicates", "allusers"}),
)  # fmt: skip
_DAY_S = 24 * 3600


def _instant(stamp: Timestamp) -> str:
    at_s = from_timestamp(stamp)
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%S") if at_s else "Unknown"


def _nodes(job: job_pb2.Job) -> str:
    return compress_hostlist(job.node_ids) or "None assigned"


def _elapsed(job: job_pb2.Job) -> float:
    return from_duration(job.run_duration)


_COLUMNS: Mapping[str, tuple[int, Callable[[job_pb2.Job], str]]] = {
    "JobID": (12, shown_id),
    "JobIDRaw": (12, lambda job: job.job_id),
    "JobName": (10, lambda job: job.name),
    "Partition": (10, lambda job: job.queue),
    "Account": (10, lambda job: ""),
    "User": (9, lambda job: job.user),
    "AllocCPUS": (10, lambda job: str(round(job.resources.cpu_limit))),
    "AllocNodes": (10, lambda job: str(len(job.node_ids))),
    "NNodes": (8, lambda job: str(len(job.node_ids) or job.resources.node_count or 1)),
    "NodeList": (15, _nodes),
    "State": (10, account_state),
    "ExitCode": (8, lambda job: f"{job.exit_code}:{job.exit_signal}"),
    "Submit": (19, lambda job: _instant(job.submit_time)),
    "Start": (19, lambda job: _instant(job.start_time)),
    "End": (19, lambda job: _instant(job.end_time)),
    "Elapsed": (10, lambda job: format_duration(_elapsed(job))),
    "ElapsedRaw": (10, lambda job: str(int(_elapsed(job)))),
    "Restarts": (8, lambda job: str(max(0, job.attempt_count - 1))),
    "Reason": (22, lambda job: job.end_reason or job.wait_code),
}
_BY_WORD = {name.lower(): name for name in _COLUMNS}


def main(app: App, words: Sequence[str]) -> None:
    """One line for each job; dlq keeps no accounts of steps."""
    given = read(GRAMMAR, words)
    if given.rest:
        raise InvalidRequest(f"sacct: {given.rest[0]!r} is no option")
    columns = [_column(word) for word in (given.listed("format") or DEFAULT.split(","))]
    rows = [
        [_COLUMNS[name][1](job) for name, _ in columns]
        for job in sorted(_found(Jobs(app.connection()), given), key=id_key)
    ]
    if "noheader" not in given.options:
        rows.insert(0, [name for name, _ in columns])
        if not {"parsable", "parsable2"} & given.options.keys():
            rows.insert(1, ["-" * width for _, width in columns])
    for row in rows:
        click.echo(_line(row, [width for _, width in columns], given))


def _column(word: str) -> tuple[str, int]:
    """`JobName%20`, in any case."""
    name, percent, width = word.partition("%")
    known = _BY_WORD.get(name.lower())
    if known is None:
        raise InvalidRequest(
            f"sacct: dlq's stand-in has no field {name[:40]!r}",
            hint="fields: " + ",".join(_COLUMNS),
        )
    return known, int(width) if percent and width.lstrip("-").isdigit() else _COLUMNS[known][0]


def _found(jobs: Jobs, given: Words) -> list[job_pb2.Job]:
    ids, user = given.listed("jobs"), given.options.get("user", "")
    if "allusers" in given.options:
        user = "*"
    try:
        named = several_jobs(jobs, ids) if ids else []
        found = jobs.list(job_ids=named, user=user, ended_within_s=None if named else _DAY_S).jobs
    except NotFound:
        return []  # as sacct: a job that does not exist (yet) is no line
    states, names, queues = (given.listed(word) for word in ("state", "name", "partition"))
    codes = wanted(states)
    return [
        job
        for job in found
        if (not codes or code(job) in codes)
        and (not names or job.name in names)
        and (not queues or job.queue in queues)
    ]


def _line(row: Sequence[str], widths: Sequence[int], given: Words) -> str:
    if "parsable2" in given.options:
        return "|".join(row)
    if "parsable" in given.options:
        return "|".join([*row, ""])
    return " ".join(
        text[: abs(width)].rjust(abs(width)) for text, width in zip(row, widths, strict=True)
    )
