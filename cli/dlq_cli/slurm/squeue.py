"""`squeue`: jobs that wait and run, in Slurm's columns."""

from __future__ import annotations

from collections.abc import Sequence

import click

from dlq.v1 import job_pb2
from dlq_cli.app import App
from dlq_cli.columns import LetterFormat, parse_format
from dlq_cli.select import several_jobs
from dlq_cli.slurm.words import Grammar, Words, read
from dlq_cli.slurm_states import code, wanted
from dlq_cli.tasks import folded, id_key
from dlq_cli.words import has_ended
from dlq_client.jobs import Jobs
from dlq_common.errors import InvalidRequest, NotFound

DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
_LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
GRAMMAR = Grammar(
    "squeue",
    {
        "h": "noheader", "j": "jobs", "u": "user", "n": "name", "p": "partition", "t": "states",
        "o": "format", "l": "long", "a": "all", "r": "array", "S": "sort", "w": "nodelist",
    },
    frozenset({"jobs", "user", "name", "partition", "states", "format", "sort", "nodelist"}),
    frozenset({"noheader", "me", "long", "all", "array"}),
)  # fmt: skip


def main(app: App, words: Sequence[str]) -> None:
    """One line for each job that the caller may see; arrays that wait are one line, as there."""
    given = read(GRAMMAR, words)
    if given.rest:
        raise InvalidRequest(f"squeue: {given.rest[0]!r} is no option")
    format_ = parse_format(
        given.options.get("format") or (_LONG if "long" in given.options else DEFAULT)
    )
    if not isinstance(format_, LetterFormat):
        raise InvalidRequest("squeue: --format takes squeue's letters, such as '%i %t'")
    look = app.look()
    if "noheader" not in given.options:
        click.echo(_heading(format_))
    found = _found(Jobs(app.connection()), given)
    if "array" not in given.options:
        found = folded(found)
    for job in sorted(found, key=_order):
        click.echo(format_.row(job, look))


def _found(jobs: Jobs, given: Words) -> list[job_pb2.Job]:
    ids = given.listed("jobs")
    try:
        named = several_jobs(jobs, ids) if ids else []
        found = jobs.list(job_ids=named, user=_user(given, bool(ids))).jobs
    except NotFound as error:
        raise InvalidRequest("squeue: error: Invalid job id specified", hint=error.what) from None
    states = wanted(given.listed("states"))
    names, queues = given.listed("name"), given.listed("partition")
    nodes, users = set(given.listed("nodelist")), given.listed("user")
    return [
        job
        for job in found
        if (code(job) in states if states else not has_ended(job) or "all" in _states(given))
        and (not names or job.name in names)
        and (not queues or job.queue in queues)
        and (not nodes or nodes & set(job.node_ids))
        and (len(users) < 2 or job.user in users)
    ]


def _user(given: Words, by_id: bool) -> str:
    """Whose jobs to ask for: everybody's is what the master lets the caller see."""
    users = given.listed("user")
    if "me" in given.options or by_id or not users:
        return ""
    return users[0] if len(users) == 1 else "*"


def _states(given: Words) -> list[str]:
    return [word.lower() for word in given.listed("states")]


def _heading(format_: LetterFormat) -> str:
    """Slurm's own words, which programs look for."""
    words = {
        "JOB_ID": "JOBID", "QUEUE": "PARTITION", "NODES(REASON)": "NODELIST(REASON)",
    }  # fmt: skip
    line = format_.heading()
    for ours, theirs in words.items():
        line = line.replace(ours.rjust(len(theirs)), theirs).replace(ours, theirs)
    return line


def _order(job: job_pb2.Job) -> tuple[str, tuple[int, int]]:
    return job.queue, id_key(job) if job.job_id.isdecimal() else (0, 0)
