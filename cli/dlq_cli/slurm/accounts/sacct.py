"""`sacct`: states and exit codes of jobs, in Slurm's columns."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from dlq.v1 import job_pb2
from dlq_cli.app import App
from dlq_cli.lists.slurm_states import account_state, wanted
from dlq_cli.lists.tasks import id_key
from dlq_cli.output.render import clean_line
from dlq_cli.slurm.accounts.sacct_fields import (
    BRIEF,
    DEFAULT,
    FIELDS,
    column,
    fill,
    midnight_s,
    since,
)
from dlq_cli.slurm.jobs.listing import named
from dlq_cli.slurm.words import Grammar, SlurmWords, only_here, read
from dlq_client.jobs import SEE_ALL, Jobs
from dlq_common.text.wire import from_timestamp

_REFUSED = {
    "json": "it prints no JSON of Slurm's; dlq history --json",
    "yaml": "it prints no YAML; dlq history --json",
    "nodelist": "dlq history keeps no list by node",
}
GRAMMAR = Grammar(
    "sacct",
    {
        "j": "jobs", "o": "format", "u": "user", "n": "noheader", "P": "parsable2",
        "p": "parsable", "X": "allocations", "S": "starttime", "E": "endtime", "s": "state",
        "D": "duplicates", "a": "allusers", "r": "partition", "b": "brief", "M": "clusters",
        "L": "allclusters", "N": "nodelist",
    },
    frozenset(
        {
            "jobs", "format", "user", "uid", "starttime", "endtime", "state", "partition", "name",
            "clusters", "delimiter", "nodelist", "units",
        }
    ),
    frozenset(
        {
            "noheader", "parsable", "parsable2", "allocations", "duplicates", "allusers", "brief",
            "allclusters", "truncate", "json", "yaml", "helpformat", "local",
        }
    ),
    _REFUSED,
)  # fmt: skip


def main(app: App, words: Sequence[str]) -> None:
    """One line for each job; dlq keeps no accounts of steps."""
    given = read(GRAMMAR, words)
    if "helpformat" in given.options:
        click.echo("\n".join(FIELDS))
        return
    columns = [column(word) for word in _fields(given)]
    only_here(app, given, GRAMMAR)
    cluster = app.connection().identity.cluster
    rows = [
        [FIELDS[name].text(job, cluster) for name, _ in columns]
        for job in sorted(_found(app, given), key=id_key)
    ]
    if "noheader" not in given.options:
        rows.insert(0, [name for name, _ in columns])
        if not {"parsable", "parsable2"} & given.options.keys():
            rows.insert(1, ["-" * abs(width) for _, width in columns])
    for row in rows:
        click.echo(clean_line(_line(row, [width for _, width in columns], given)))


def _fields(given: SlurmWords) -> list[str]:
    default = BRIEF if "brief" in given.options else os.environ.get("SACCT_FORMAT") or DEFAULT
    return given.listed("format") or default.split(",")


def _found(app: App, given: SlurmWords) -> list[job_pb2.Job]:
    jobs, ids, now_s = Jobs(app.connection()), given.listed("jobs"), app.clock.now_s()
    states = wanted("sacct", given.listed("state"))
    start, end = given.options.get("starttime"), given.options.get("endtime")
    from_s = since(start, "starttime", now_s) if start else midnight_s(now_s)
    before_s = since(end, "endtime", now_s) if end else None
    if ids:  # as sacct: a job that does not exist (yet) is no line
        found = [job.job for job in named(app, ids, detailed=False)]
    else:
        within_s = max(1, round(now_s - (from_s or 0.0)))
        found = list(jobs.list(user=_user(app, given), ended_within_s=within_s).jobs)
    names, queues, users = given.listed("name"), given.listed("partition"), _users(given)
    return [
        job
        for job in found
        if (not ids or not users or job.user in users)
        and (not states or account_state(job) in states)
        and (not names or job.name in names)
        and (not queues or job.queue in queues)
        and (len(users) < 2 or job.user in users)
        and (before_s is None or from_timestamp(job.submit_time) <= before_s)
    ]


def _users(given: SlurmWords) -> list[str]:
    return given.listed("user") + given.listed("uid")


def _user(app: App, given: SlurmWords) -> str:
    users = _users(given)
    if len(users) == 1 and "allusers" not in given.options:
        return users[0]
    everybody = "allusers" in given.options and app.connection().identity.role in SEE_ALL
    return "*" if users or everybody else ""


def _line(row: Sequence[str], widths: Sequence[int], given: SlurmWords) -> str:
    bar = given.options.get("delimiter", "|")
    if "parsable2" in given.options:
        return bar.join(row)
    if "parsable" in given.options:
        return bar.join([*row, ""])
    return " ".join(fill(text, width) for text, width in zip(row, widths, strict=True))
