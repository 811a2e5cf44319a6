"""`sacct`: states and exit codes of jobs and of their steps, in Slurm's columns.

It asks once. A job that the master has forgotten ([retention] in the configuration) is no line.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Sequence, Set

import click

from dlq_cli.app import App
from dlq_cli.output.said import SlurmSays
from dlq_cli.output.slurm_page import accounting_page, show
from dlq_cli.slurm.accounts import fields
from dlq_cli.slurm.accounts.grammar import GRAMMAR
from dlq_cli.slurm.accounts.row import AccountRow
from dlq_cli.slurm.accounts.table import AccountColumn, form_of, print_table
from dlq_cli.slurm.accounts.window import keeper, window_of
from dlq_cli.slurm.jobs.listing import everybody, folded_lines, name_cancellers, named
from dlq_cli.slurm.jobs.seen import SeenJob
from dlq_cli.slurm.jobs.steps import steps_of
from dlq_cli.slurm.words import SlurmWords, read
from dlq_client.jobs import SEE_ALL

_HELP = "sacct [<OPTION>]\n     see the manual page sacct(1) of Slurm 22.05 for the options"
_RULE = "-" * 80
# Options that read the whole of a job, and fields that a plain list of jobs holds.
_WHOLE = frozenset({"json", "yaml", "batch-script", "nodelist"})
_PLAIN = frozenset(
    {
        "Account", "Cluster", "Eligible", "ExitCode", "GID", "Group", "JobID", "JobIDRaw",
        "JobName", "Partition", "Priority", "QOS", "Reason", "State", "Submit", "UID", "User",
    }
)  # fmt: skip


def main(app: App, words: Sequence[str]) -> None:
    """One line for each job, and below it one for each step."""
    given = read(GRAMMAR, words)
    if given.rest:
        raise SlurmSays(
            "sacct: error: Unknown arguments:", *(f"sacct: error:  {one}" for one in given.rest)
        )
    if _answers_alone(given):
        return
    columns = fields.columns_of(_format(given))
    jobs = _found(app, given, detailed=_needs_details(given, columns))
    if "duplicates" in given.options and any(len(job.detail.attempts) > 1 for job in jobs):
        app.say("each job is one line, of its last attempt; earlier ones: dlq show JOB")
    if {"json", "yaml"} & given.options.keys() or "State" in {name for name, _ in columns}:
        name_cancellers(app, jobs)
    if "json" in given.options or "yaml" in given.options:
        from dlq_cli.slurm.accounts.openapi import NOTHING_FOUND, account_object

        steps = steps_of(app, jobs)
        page = accounting_page(
            jobs=[account_object(job, steps.get(job.raw_id, ())) for job in jobs]
        )
        if not jobs:
            page["errors"] = [NOTHING_FOUND]
        show(page, as_yaml="yaml" in given.options)
    elif "batch-script" in given.options:
        _print_scripts(app, jobs)
    else:
        _print(columns, _rows(app, jobs, given, {name for name, _ in columns}), given)


def _answers_alone(given: SlurmWords) -> bool:
    """Options that ask for no job."""
    if "helpformat" in given.options:
        click.echo(fields.helpformat().lstrip("\n"))
    elif "help" in given.options:
        click.echo(_HELP)
    elif "usage" in given.options:
        click.echo("Usage: sacct [options]\n\tUse --help for help")
    elif "completion" in given.options:
        raise SlurmSays("Slurm job completion is disabled")
    else:
        return False
    return True


def _format(given: SlurmWords) -> str:
    if "format" in given.options:
        return given.options["format"]
    if "long" in given.options:
        return fields.LONG
    if "brief" in given.options:
        return fields.BRIEF
    return os.environ.get("SACCT_FORMAT") or fields.DEFAULT


def _needs_details(given: SlurmWords, columns: Sequence[tuple[str, int]]) -> bool:
    """Whether a plain list of jobs does not hold what is asked for."""
    plain = "allocations" in given.options and not _WHOLE & given.options.keys()
    return not plain or not {name for name, _ in columns} <= _PLAIN


def _found(app: App, given: SlurmWords, *, detailed: bool) -> list[SeenJob]:
    clusters = {name.lower() for name in given.listed("clusters")}
    users = _users(app, given)
    window = window_of(given, app.clock.now_s())
    keep = keeper(given, window, users)
    own = app.connection().identity.cluster.lower()
    if clusters and not clusters & {"all", own}:
        return []  # as sacct: accounts of a cluster that is not known are empty
    ids = given.listed("jobs")
    if ids:  # as sacct: a job that does not exist (yet) is no line
        for word in ids:
            if not word[:1].isdecimal():
                raise SlurmSays(f"sacct: fatal: Bad job/step specified: {word[:40]}")
        found = folded_lines(named(app, ids, detailed=detailed))
    else:
        user = users[0] if len(users) == 1 else "*"
        within_s = max(1, round(app.clock.now_s() - window.from_s) + 1)
        found = folded_lines(everybody(app, detailed=detailed, ended_within_s=within_s, user=user))
    return sorted((job for job in found if keep(job)), key=lambda job: job.number_key)


def _users(app: App, given: SlurmWords) -> list[str]:
    """Names; empty: everybody. Without a word the caller's own, and all for an operator."""
    said = given.listed("user")
    if said:
        return [_user(word) for word in said]
    identity = app.connection().identity
    if "allusers" in given.options or given.listed("jobs") or identity.role in SEE_ALL:
        return []
    return [identity.user]


def _user(word: str) -> str:
    try:
        return pwd.getpwuid(int(word)).pw_name if word.isdecimal() else pwd.getpwnam(word).pw_name
    except (KeyError, OverflowError):
        if word.isdecimal():
            return word
        raise SlurmSays(f"sacct: error: Invalid user id: {word[:40]}") from None


def _rows(
    app: App, jobs: Sequence[SeenJob], given: SlurmWords, columns: Set[str]
) -> list[AccountRow]:
    """Jobs and their steps; of `-j 3.batch` the named step alone."""
    asked = given.listed("jobs")
    whole = {word for word in asked if "." not in word}
    alone = "allocations" in given.options
    steps = set() if alone else {word for word in asked if "." in word}
    known = {} if alone and not columns & fields.OF_STEPS else steps_of(app, jobs)
    rows: list[AccountRow] = []
    for job in jobs:
        own = known.get(job.raw_id, [])
        is_whole = not steps or bool(job.names & whole)
        if is_whole:
            rows.append(AccountRow(job, own=own))
        if alone:
            continue
        rows += [
            AccountRow(job, step)
            for step in own
            if is_whole or steps & {step.shown_id, step.raw_id}
        ]
    return rows


def _print(
    columns: Sequence[tuple[str, int]], rows: Sequence[AccountRow], given: SlurmWords
) -> None:
    made = [AccountColumn(name, width, fields.FIELDS[name].text) for name, width in columns]
    print_table(made, rows, form_of(given.options))


def _print_scripts(app: App, jobs: Sequence[SeenJob]) -> None:
    from dlq_cli.output.terminal import screened

    for job in jobs:
        script = job.spec.script or "NONE\n"
        script = screened(script) if app.look().tty else script
        click.echo(f"Batch Script for {job.shown_id}\n{_RULE}\n{script}")
