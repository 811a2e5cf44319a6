"""`dlq hold`, `release`, `pause`, `resume`: keep jobs from running, and let them."""

from __future__ import annotations

import click

from dlq.v1 import job_pb2
from dlq_cli.app import App
from dlq_cli.commands.jobs.each import for_each
from dlq_cli.commands.options import (
    examples,
    json_option,
    never_asks_option,
    pass_app,
    yes_option,
)
from dlq_cli.lists.columns import reason
from dlq_cli.lists.select import targets
from dlq_cli.words import shown_state
from dlq_client.jobs import Edited, Jobs


@click.command(epilog=examples("dlq hold 17 18", "dlq hold --admin --reason 'disk is full' 17"))
@click.option("--admin", is_flag=True, help="Hold it as an operator: its owner cannot release it.")
@click.option("--reason", metavar="TEXT", default="", help="Words for the owner.")
@json_option
@click.argument("job", nargs=-1, required=True)
@pass_app
def hold(app: App, job: tuple[str, ...], admin: bool, reason: str, as_json: bool) -> None:
    """Keep JOB... from starting. One that runs goes on, but is not queued again."""
    jobs = Jobs(app.connection())
    for_each(
        app,
        targets(jobs, job),
        lambda target: jobs.hold_each(target, admin=admin, reason=reason),
        standing,
        as_json=as_json,
    )


@click.command(epilog=examples("dlq release 17"))
@json_option
@click.argument("job", nargs=-1, required=True)
@pass_app
def release(app: App, job: tuple[str, ...], as_json: bool) -> None:
    """Take the hold of JOB... back. An operator's hold takes an operator to release."""
    jobs = Jobs(app.connection())
    for_each(app, targets(jobs, job), jobs.release_each, standing, as_json=as_json)


@click.command(epilog=examples("dlq pause 17", "dlq pause -y 17"))
@yes_option
@json_option
@click.argument("job", nargs=-1, required=True)
@pass_app
def pause(app: App, job: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Checkpoint JOB..., free the GPUs and keep the jobs until `dlq resume`.

    Asks before it stops a job that is not known to save its work. Without a terminal it refuses,
    unless -y is given.
    """
    jobs = Jobs(app.connection())

    def change(target: str) -> Edited:
        return jobs.pause_each(target, accept_loss=yes)

    def accepted(target: str) -> Edited:
        return jobs.pause_each(target, accept_loss=True)

    for_each(app, targets(jobs, job), change, standing, as_json=as_json, accepted=accepted)


@click.command(epilog=examples("dlq resume 17"))
@never_asks_option
@json_option
@click.argument("job", nargs=-1, required=True)
@pass_app
def resume(app: App, job: tuple[str, ...], as_json: bool) -> None:
    """Queue paused JOB... again; they go on from their checkpoints."""
    jobs = Jobs(app.connection())
    for_each(app, targets(jobs, job), jobs.resume_each, standing, as_json=as_json)


def standing(job: job_pb2.Job) -> str:
    """The state of a job after an order."""
    state = shown_state(job)
    if state == "held":
        return f"held ({reason(job)})"
    kind = " (held when it stops)" if job.hold_kind and job.HasField("attempt_state") else ""
    return state + kind
