"""`dlq cancel`: end jobs."""

from __future__ import annotations

import sys

import click

from dlq.v1 import job_pb2
from dlq_cli.app import App
from dlq_cli.commands.each import for_each
from dlq_cli.commands.options import examples, json_option, pass_app, yes_option
from dlq_cli.select import several_jobs
from dlq_cli.states import parse_states
from dlq_cli.words import has_ended, shown_state
from dlq_client.jobs import Jobs
from dlq_common.errors import InvalidRequest


@click.command(
    epilog=examples(
        "dlq cancel 17",
        "dlq cancel 17-20 train",
        "dlq cancel -u me -t queued",
        "dlq cancel --kill 17",
    )
)
@click.option("-u", "--user", metavar="USER", help="Jobs of this user; `me` for your own.")
@click.option("-n", "--name", metavar="NAME", help="Jobs of this name.")
@click.option("-t", "--state", metavar="STATE", help="Jobs in these states, with commas.")
@click.option("--kill", is_flag=True, help="Kill at once instead of giving time to save.")
@yes_option
@json_option
@click.argument("job", nargs=-1)
@pass_app
def cancel(
    app: App,
    job: tuple[str, ...],
    user: str | None,
    name: str | None,
    state: str | None,
    kill: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """End JOB..., or all jobs that match the options.

    Queued jobs end at once, running ones are given their grace to save. On a terminal it asks when
    more than one job would end.
    """
    jobs = Jobs(app.connection())
    if job:
        if user or name or state:
            raise InvalidRequest("name jobs, or filter with -u, -n and -t, but not both")
        job_ids = several_jobs(jobs, job)
    else:
        job_ids = _matching(app, jobs, user, name, state)
    if not job_ids:
        app.say("no job matches; nothing was cancelled")
        return
    if len(job_ids) > 1 and not yes and sys.stdin.isatty() and sys.stderr.isatty():
        app.confirm(f"{len(job_ids)} jobs would end: {_some(job_ids)}", yes=False)
    for_each(app, job_ids, lambda job_id: jobs.cancel(job_id, kill=kill), _outcome, as_json=as_json)


def _matching(
    app: App, jobs: Jobs, user: str | None, name: str | None, state: str | None
) -> list[str]:
    if not (user or name or state):
        raise InvalidRequest("which jobs?", hint="dlq cancel JOB..., or filter with -u, -n and -t")
    owner = "" if user in (None, "me") else user or ""
    found = jobs.list(user=owner, name=name or "", states=parse_states(state)).jobs
    return [job.job_id for job in found if not has_ended(job)]


def _outcome(job: job_pb2.Job) -> str:
    state = shown_state(job)
    return f"is ending ({state})" if job.HasField("attempt_state") else state


def _some(job_ids: list[str]) -> str:
    return ", ".join(job_ids[:10]) + (", ..." if len(job_ids) > 10 else "")
