"""`squeue`: jobs that wait and run, in Slurm's columns."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from dlq.v1 import job_pb2
from dlq_cli.app import App
from dlq_cli.lists.slurm_states import code, queue_state, wanted
from dlq_cli.lists.tasks import folded
from dlq_cli.slurm.squeue_fields import SqueueColumn, by_letters, by_names, in_order, line
from dlq_cli.slurm.words import Grammar, SlurmWords, known_jobs, only_here, read
from dlq_cli.words import has_ended
from dlq_client.jobs import SEE_ALL, Jobs
from dlq_common.errors import InvalidRequest
from dlq_common.text.hostlist import expand_hostlist

DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
_LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
_START = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
_ENDED_WITHIN_S = 300  # Slurm's MinJobAge: `-t all` shows ended jobs for so long
_REFUSED = {
    "json": "it prints no JSON of Slurm's; dlq status --json",
    "yaml": "it prints no YAML; dlq status --json",
    "iterate": "it does not repeat itself; dlq status -w",
}
GRAMMAR = Grammar(
    "squeue",
    {
        "h": "noheader", "j": "jobs", "u": "user", "n": "name", "p": "partition", "t": "states",
        "o": "format", "O": "Format", "l": "long", "a": "all", "r": "array", "S": "sort",
        "w": "nodelist", "M": "clusters", "i": "iterate",
    },
    frozenset(
        {
            "jobs", "user", "users", "name", "partition", "states", "format", "Format", "sort",
            "nodelist", "clusters", "iterate",
        }
    ),
    frozenset(
        {"noheader", "me", "long", "all", "array", "array-unique", "start", "json", "yaml", "local"}
    ),
    _REFUSED,
)  # fmt: skip


def main(app: App, words: Sequence[str]) -> None:
    """One line for each job that the caller may see; arrays that wait are one line, as there."""
    given = read(GRAMMAR, words)
    columns = _columns(given)
    cluster = only_here(app, given, GRAMMAR)
    found = _found(app, Jobs(app.connection()), given)
    if not {"array", "array-unique"} & given.options.keys():
        found = folded(found)
    if "noheader" not in given.options:
        if cluster:
            click.echo(f"CLUSTER: {cluster}")
        click.echo(line(columns, lambda field: field.heading))
    for job in in_order(found, given.options.get("sort", "P")):
        click.echo(line(columns, lambda field, job=job: field.text(job)))  # type: ignore[misc]


def _columns(given: SlurmWords) -> list[SqueueColumn]:
    if names := given.options.get("Format"):
        return by_names(names)
    default = _START if "start" in given.options else DEFAULT
    if "long" in given.options:
        default = _LONG
    return by_letters(given.options.get("format") or os.environ.get("SQUEUE_FORMAT") or default)


def _found(app: App, jobs: Jobs, given: SlurmWords) -> list[job_pb2.Job]:
    states = wanted("squeue", given.listed("states"))
    ids = given.listed("jobs")
    shown = _named(jobs, ids) if ids else jobs.list(
        user=_user(app, given), ended_within_s=_ENDED_WITHIN_S
    ).jobs  # fmt: skip
    every = "all" in {word.lower() for word in given.listed("states")}
    names, queues = given.listed("name"), given.listed("partition")
    nodes, users = _nodes(given), _users(given)
    return [
        job
        for job in shown
        if (queue_state(job) in states if states else every or not has_ended(job))
        and ("start" not in given.options or code(job) == "PD")
        and (not names or job.name in names)
        and (not queues or job.queue in queues)
        and (not nodes or nodes & set(job.node_ids))
        and (len(users) < 2 or job.user in users)
    ]


def _named(jobs: Jobs, ids: Sequence[str]) -> Sequence[job_pb2.Job]:
    """The jobs of these ids, as in Slurm: a missing one is an error, and of several the others are
    shown.
    """
    found = known_jobs(jobs, ids)
    if not found and len(ids) == 1:
        raise InvalidRequest("slurm_load_jobs error: Invalid job id specified")
    return found


def _nodes(given: SlurmWords) -> set[str]:
    if "nodelist" not in given.options:
        return set()
    try:
        return set(expand_hostlist(given.options["nodelist"]))
    except ValueError as error:
        raise InvalidRequest(f"squeue: --nodelist: {error}") from None


def _users(given: SlurmWords) -> list[str]:
    return given.listed("user") + given.listed("users")


def _user(app: App, given: SlurmWords) -> str:
    """The user to ask for: all users, as far as the master shows their jobs to the caller."""
    users = _users(given)
    if len(users) == 1:
        return users[0]
    everybody = app.connection().identity.role in SEE_ALL and "me" not in given.options
    return "*" if users or everybody else ""
