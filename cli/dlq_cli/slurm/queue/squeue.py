"""`squeue`: jobs that wait and run, in Slurm's columns.

It asks once and keeps nothing. With --iterate it asks again each time. A master that does not
answer is an error line as in Slurm.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import click

from dlq_cli.app import App
from dlq_cli.lists.slurm_states import queue_state, wanted, words_of
from dlq_cli.output.render import clean_line
from dlq_cli.output.said import NO_SUCH_JOB, SlurmSays
from dlq_cli.output.slurm_page import show
from dlq_cli.slurm import columns as layout
from dlq_cli.slurm.jobs.listing import at_work, everybody, folded_lines, named
from dlq_cli.slurm.jobs.seen import SeenJob
from dlq_cli.slurm.jobs.steps import steps_of
from dlq_cli.slurm.queue.fields import JOB_FIELDS, STEP_FIELDS
from dlq_cli.slurm.queue.grammar import GRAMMAR
from dlq_cli.slurm.queue.order import DEFAULT as DEFAULT_ORDER
from dlq_cli.slurm.queue.order import in_order
from dlq_cli.slurm.words import SlurmWords, only_here, read, seconds_between
from dlq_client.nodes import Nodes
from dlq_common.text.hostlist import expand_hostlist

_DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
_LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
_START = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
_STEPS = "%.15i %.8j %.9P %.8u %.9M %N"


def main(app: App, words: Sequence[str]) -> None:
    """One line for each job that the caller may see; arrays that wait are one line, as there."""
    given = _with_environment(read(GRAMMAR, words))
    if "usage" in given.options:
        click.echo(GRAMMAR.usage)
        return
    if "json" in given.options or "yaml" in given.options:
        from dlq_cli.slurm.jobs.openapi import jobs_page

        show(jobs_page(everybody(app, detailed=True)), as_yaml="yaml" in given.options)
        return
    every_s = seconds_between(given, "squeue")
    while True:
        _print(app, given)
        if every_s is None:
            return
        time.sleep(every_s)
        click.echo()


# The variables of squeue, and the options that they stand for.
_VARIABLES = {
    "SQUEUE_ACCOUNT": "account", "SQUEUE_ALL": "all", "SQUEUE_ARRAY": "array",
    "SQUEUE_ARRAY_UNIQUE": "array-unique",
    "SQUEUE_NAMES": "name", "SQUEUE_PARTITION": "partition", "SQUEUE_QOS": "qos",
    "SQUEUE_SORT": "sort", "SQUEUE_STATES": "states", "SQUEUE_USERS": "user",
    "SQUEUE_LICENSES": "licenses",
}  # fmt: skip


def _with_environment(given: SlurmWords) -> SlurmWords:
    more = {option: os.environ[name] for name, option in _VARIABLES.items() if os.environ.get(name)}
    steps = "steps" in given.options
    if not {"format", "Format"} & given.options.keys() and not steps:
        for name, option in (("SQUEUE_FORMAT", "format"), ("SQUEUE_FORMAT2", "Format")):
            if os.environ.get(name):
                more[option] = os.environ[name]
                break
    return given._replace(options={**more, **given.options})


def _print(app: App, given: SlurmWords) -> None:
    headed = "noheader" not in given.options
    if headed and {"long", "iterate"} & given.options.keys():
        click.echo(time.ctime())
    cluster = only_here(app, given, GRAMMAR)
    if cluster and headed:
        click.echo(f"CLUSTER: {cluster}")
    if "steps" in given.options:
        _print_steps(app, given)
    else:
        _print_jobs(app, given)


def _print_jobs(app: App, given: SlurmWords) -> None:
    columns = _columns(given)
    order = given.options.get("sort", DEFAULT_ORDER)
    # Nodes of jobs that have ended are in the details.
    detailed = layout.needs_detail(columns) or bool({"start", "states"} & given.options.keys())
    found = _found(app, given, detailed=detailed)
    if not {"array", "array-unique"} & given.options.keys():
        found = folded_lines(found, given.listed("jobs"))
    if "noheader" not in given.options:  # first, as in Slurm, also before an error
        click.echo(layout.heading(columns))
    if lines := layout.lines(columns, in_order(found, order)):
        click.echo("\n".join(lines))


def _columns(given: SlurmWords) -> list[layout.LaidOut[SeenJob]]:
    if names := given.options.get("Format"):
        return JOB_FIELDS.by_names(names)
    default = _START if "start" in given.options else _DEFAULT
    if "long" in given.options:
        default = _LONG
    return JOB_FIELDS.by_letters(given.options.get("format") or default)


def _print_steps(app: App, given: SlurmWords) -> None:
    columns = (
        STEP_FIELDS.by_names(given.options["Format"])
        if given.options.get("Format")
        else STEP_FIELDS.by_letters(given.options.get("format") or _STEPS)
    )
    ids = [word for word in given.listed("steps") if word]
    for word in ids:
        if not re.fullmatch(r"[\d_+]+\.\w+", word):
            raise SlurmSays(f"squeue: error: Invalid job_step id: {word[:40]}.??")
    keep = _filter(app, given)
    jobs = named(app, ids, detailed=True) if ids else at_work(app)
    living = [job for job in jobs if keep(job) and not job.ended]
    steps = [
        step
        for found in steps_of(app, living, running_only=True).values()
        for step in sorted(found, key=lambda one: one.is_batch)
        if not ids or any(map(step.is_named, ids))
    ]
    if "noheader" not in given.options:
        click.echo(layout.heading(columns))
    for line in layout.lines(columns, steps):
        click.echo(line)


def _found(app: App, given: SlurmWords, *, detailed: bool) -> list[SeenJob]:
    states = wanted("squeue", given.listed("states"))
    every = "all" in {word.lower() for word in given.listed("states")}
    ids = given.listed("jobs")
    keep = _filter(app, given)
    if ids:
        shown = _named(app, ids, detailed=detailed)
    elif all(word.isdecimal() or _is_known(word) for word in given.listed("user")):
        shown = everybody(
            app,
            detailed=detailed,
            states=words_of(states),
            user=_one_user(app, given),
            queue=_one(given.listed("partition")),
            name=_one(given.listed("name")),
        )
    else:
        # Of a name that this host does not know, all jobs tell whether anybody has it.
        shown = everybody(app, detailed=detailed)
    _tell_unknown_users(given, shown)
    return [
        job
        for job in shown
        if (queue_state(job.job) in states if states else every or not job.ended)
        and ("start" not in given.options or job.code == "PD")
        and keep(job)
    ]


def _one(words: Sequence[str]) -> str:
    """The master lists by one; of several it lists all."""
    return words[0] if len(words) == 1 else ""


def _one_user(app: App, given: SlurmWords) -> str:
    """The user whose jobs alone are looked for, if this host knows the name; else everybody."""
    users = _users(app, given) or ()
    return next((name for name in users if len(users) == 1 and _is_known(name)), "*")


def _is_known(user: str) -> bool:
    import pwd

    try:
        return bool(pwd.getpwnam(user))
    except (KeyError, ValueError):
        return False


def _named(app: App, ids: Sequence[str], *, detailed: bool) -> Sequence[SeenJob]:
    """The jobs of these ids, as in Slurm: a missing one is an error, and of several the others are
    shown.
    """
    for word in ids:
        if not word[:1].isdecimal():
            raise SlurmSays(f"squeue: error: Invalid job id: {word[:40]}")
    found = named(app, ids, detailed=detailed)
    if not found and len(ids) == 1:
        raise SlurmSays(NO_SUCH_JOB)
    return found


_LISTS = ("jobs", "states", "name", "partition", "account", "qos", "user")


def _filter(app: App, given: SlurmWords) -> Callable[[SeenJob], bool]:
    """The filter of all options besides ids and states."""
    names, queues = given.listed("name"), given.listed("partition")
    accounts, qos = given.listed("account"), given.listed("qos")
    nothing = (
        bool(given.listed("licenses") or given.listed("reservation"))
        or given.names_nothing(*_LISTS)
    )  # fmt: skip
    nodes, users = _nodes(app, given), _users(app, given)

    def keep(job: SeenJob) -> bool:
        return (
            not nothing
            and (not names or job.job.name in names)
            and (not queues or job.job.queue in queues)
            and (not accounts or job.account in accounts)
            and (not qos or job.qos in qos)
            and (not nodes or bool(nodes & set(job.nodes)))
            and (users is None or job.job.user in users)
        )

    return keep


def _nodes(app: App, given: SlurmWords) -> set[str]:
    if "nodelist" not in given.options:
        return set()
    try:
        asked = expand_hostlist(given.options["nodelist"])
    except ValueError as error:
        raise SlurmSays(f"squeue: error: Invalid node list: {error}") from None
    known = {node.node_id: node.node_id for node in Nodes(app.connection()).list()}
    known |= {node.hostname: node.node_id for node in Nodes(app.connection()).list()}
    for name in asked:
        if name not in known:
            raise SlurmSays(f"squeue: error: Invalid node name {name[:64]}")
    return {known[name] for name in asked}


def _users(app: App, given: SlurmWords) -> set[str] | None:
    """None: everybody. A number is a user's id."""
    if "me" in given.options:
        return {app.connection().identity.user}
    said = given.listed("user")
    if not said:
        return None
    return {_user(word) for word in said}


def _tell_unknown_users(given: SlurmWords, shown: Sequence[SeenJob]) -> None:
    """Of names that neither this host nor a job has."""
    users = {job.job.user for job in shown}
    for word in given.listed("user"):
        if not (word.isdecimal() or word in users or _is_known(word)):
            click.echo(f"squeue: error: Invalid user: {clean_line(word[:64])}\n", err=True)


def _user(word: str) -> str:
    import pwd

    if word.isdecimal():
        with suppress(KeyError, OverflowError):
            return pwd.getpwuid(int(word)).pw_name
    return word
