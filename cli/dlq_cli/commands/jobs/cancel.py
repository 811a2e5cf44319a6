"""`dlq cancel`: end jobs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from dlq.v1 import job_pb2
from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.clusters.listed import job_argument
from dlq_cli.commands.jobs.each import change_each, tell_edited
from dlq_cli.commands.look.wait import wait_for
from dlq_cli.commands.options import examples, json_option, pass_app, yes_option
from dlq_cli.facts.common import document
from dlq_cli.facts.job import job_facts
from dlq_cli.lists.select import targets
from dlq_cli.lists.states import parse_states
from dlq_cli.lists.tasks import shown_id
from dlq_cli.patience import duration_s
from dlq_cli.words import has_ended, shown_state
from dlq_client.jobs import Edited, Jobs
from dlq_common.errors import InvalidRequest


@click.command(
    epilog=examples(
        "dlq cancel 17",
        "dlq cancel 17-20 train",
        "dlq cancel -u me -t queued",
        "dlq cancel --kill --wait 17",
    )
)
@click.option("-u", "--user", metavar="USER", help="Jobs of this user; `me` for your own.")
@click.option("-n", "--name", metavar="NAME", help="Jobs of this name.")
@click.option("-t", "--state", metavar="STATE", help="Jobs in these states, with commas.")
@click.option(
    "--kill",
    is_flag=True,
    help="Give no time to save: every process is killed as soon as its node hears of it. Work "
    "since the last save is lost.",
)
@click.option(
    "--wait",
    "until_gone",
    is_flag=True,
    help="Stay until the processes are gone and their GPUs are free.",
)
@click.option("--timeout", metavar="TIME", help="With --wait: at most this long; exit code 124.")
@yes_option
@json_option
@job_argument()
@pass_app
def cancel(
    app: App,
    job: tuple[str, ...],
    user: str | None,
    name: str | None,
    state: str | None,
    kill: bool,
    until_gone: bool,
    timeout: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """End JOB..., or all jobs that match the options.

    Queued jobs end at once, running ones are given their grace to save. On a terminal it asks when
    more than one job would end.

    It returns as soon as the order is on the master's disk. The order survives restarts of master
    and agent, and reaches a silent node when that is back. Processes may still run then, also with
    --kill; --wait stays until they are gone.
    """
    if timeout and not until_gone:
        raise InvalidRequest("--timeout goes with --wait")
    timeout_s = duration_s("--timeout", timeout)
    jobs = Jobs(app.connection())
    if job:
        if (user, name, state) != (None, None, None):
            raise InvalidRequest("name jobs, or filter with -u, -n and -t, but not both")
        job_ids = targets(jobs, job)
    else:
        job_ids = _matching(app, jobs, user, name, state)
    if not job_ids:
        app.say("no job matches; nothing was cancelled")
        return
    if len(job_ids) > 1 and not yes and sys.stdin.isatty() and sys.stderr.isatty():
        app.confirm(f"{len(job_ids)} jobs would end: {_some(job_ids)}", yes=False)

    if until_gone:
        changed, code = _cancel(app, jobs, job_ids, kill=kill, quiet=True)
        code = _wait_gone(app, changed, timeout_s, as_json=as_json) or code
    else:
        changed, code = _cancel(app, jobs, job_ids, kill=kill, quiet=as_json)
        if as_json:
            click.echo(document({"jobs": [job_facts(job) for job in changed]}))
    if code:
        raise exit_codes.Ended(code)


def _cancel(
    app: App, jobs: Jobs, job_ids: Sequence[str], *, kill: bool, quiet: bool
) -> tuple[list[job_pb2.Job], int]:
    """The jobs after it, and the exit code of the first refusal; many jobs take few calls."""
    if len(job_ids) > 1:
        edited = jobs.cancel_many(job_ids, kill=kill, with_jobs=True)
        return list(edited.jobs), tell_edited(app, edited, ordered, quiet=quiet)

    def change(target: str) -> Edited:
        return jobs.cancel_each(target, kill=kill)

    return change_each(app, job_ids, change, ordered, quiet=quiet)


def _wait_gone(
    app: App, jobs: Sequence[job_pb2.Job], timeout_s: int | None, *, as_json: bool
) -> int:
    """Tell each job's end when nothing of it runs any more; the exit code."""
    job_ids = [job.job_id for job in jobs]
    try:
        found = wait_for(app, job_ids, timeout_s=timeout_s) if job_ids else {}
    except KeyboardInterrupt:
        app.say("stopped waiting; the order stands")
        return exit_codes.INTERRUPTED
    if as_json:
        click.echo(document({"jobs": [job_facts(job) for job in found.values()]}))
    else:
        for job in found.values():
            click.echo(f"job {shown_id(job)}: {_outcome(job)}")
    left = [job.job_id for job in found.values() if not has_ended(job)]
    if left:
        app.say(f"waited {timeout_s} s; the order stands, and something still runs: {_some(left)}")
        return exit_codes.TIMED_OUT
    return exit_codes.OK


def _matching(
    app: App, jobs: Jobs, user: str | None, name: str | None, state: str | None
) -> list[str]:
    if "" in (user, name, state):  # of a variable that is not set: it would fit every job
        raise InvalidRequest("the word behind -u, -n or -t is empty: which jobs?")
    if not (user or name or state):
        raise InvalidRequest("which jobs?", hint="dlq cancel JOB..., or filter with -u, -n and -t")
    owner = "" if user in (None, "me") else user or ""
    found = jobs.list(user=owner, name=name or "", states=parse_states(state)).jobs
    return [job.job_id for job in found if not has_ended(job)]


def ordered(job: job_pb2.Job) -> str:
    """The effect of the order. A cancelled job that had already ended shows its own end."""
    state = shown_state(job)
    if has_ended(job) and state != "cancelled":
        return f"has ended already ({state})"
    return _outcome(job)


def _outcome(job: job_pb2.Job) -> str:
    state = shown_state(job)
    return f"is ending ({state})" if job.HasField("attempt_state") else state


def _some(job_ids: list[str]) -> str:
    return ", ".join(job_ids[:10]) + (", ..." if len(job_ids) > 10 else "")
