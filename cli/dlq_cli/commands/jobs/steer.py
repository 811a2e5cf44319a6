"""Orders to jobs: `dlq hold`, `release`, `pause`, `resume`, `requeue`, `signal`, `checkpoint`."""

from __future__ import annotations

from functools import partial

import click

from dlq.v1 import job_pb2
from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.clusters.listed import job_argument
from dlq_cli.commands.jobs.each import for_each
from dlq_cli.commands.options import (
    detaching,
    examples,
    json_option,
    never_asks_option,
    pass_app,
    yes_option,
)
from dlq_cli.facts.common import document
from dlq_cli.facts.job import job_facts
from dlq_cli.lists.columns import reason
from dlq_cli.lists.select import one_job, targets
from dlq_cli.lists.tasks import shown_id
from dlq_cli.patience import duration_s
from dlq_cli.words import has_ended, shown_state
from dlq_client.jobs import Jobs
from dlq_client.watch import watch_jobs
from dlq_common.errors import IllegalTransition, InvalidRequest
from dlq_common.text.signals import signal_name
from dlq_common.text.wire import from_timestamp


@click.command(epilog=examples("dlq hold 17 18", "dlq hold --admin --reason 'disk is full' 17"))
@click.option("--admin", is_flag=True, help="Hold it as an operator: its owner cannot release it.")
@click.option("--reason", metavar="TEXT", default="", help="Words for the owner.")
@json_option
@job_argument(required=True)
@pass_app
def hold(app: App, job: tuple[str, ...], admin: bool, reason: str, as_json: bool) -> None:
    """Keep JOB... from starting. One that runs goes on, but is not queued again."""
    jobs = Jobs(app.connection())
    change = partial(jobs.hold_each, admin=admin, reason=reason)
    for_each(app, targets(jobs, job), change, standing, as_json=as_json)


@click.command(epilog=examples("dlq release 17"))
@json_option
@job_argument(required=True)
@pass_app
def release(app: App, job: tuple[str, ...], as_json: bool) -> None:
    """Take the hold of JOB... back. An operator's hold takes an operator to release."""
    jobs = Jobs(app.connection())
    for_each(app, targets(jobs, job), jobs.release_each, standing, as_json=as_json)


@click.command(epilog=examples("dlq pause 17", "dlq pause -y 17", "dlq pause --in-memory 17"))
@click.option(
    "--in-memory",
    is_flag=True,
    help="Without a save: GPU memory goes to the memory of its hosts, where the node allows it.",
)
@yes_option
@json_option
@job_argument(required=True)
@pass_app
def pause(app: App, job: tuple[str, ...], in_memory: bool, yes: bool, as_json: bool) -> None:
    """Checkpoint JOB..., free the GPUs and keep the jobs until `dlq resume`.

    Asks before it stops a job that is not known to save its work. Without a terminal it refuses,
    unless -y is given.
    """
    jobs = Jobs(app.connection())

    change = partial(jobs.pause_each, accept_loss=yes, in_memory=in_memory)
    accepted = partial(jobs.pause_each, accept_loss=True, in_memory=in_memory)
    for_each(app, targets(jobs, job), change, standing, as_json=as_json, accepted=accepted)


@click.command(epilog=examples("dlq resume 17"))
@never_asks_option
@json_option
@job_argument(required=True)
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


PATIENCE = "10m"


@click.command(epilog=examples("dlq requeue 17", "dlq requeue --hold 12_[0-3]"))
@click.option("--hold", is_flag=True, help="Also keep it from starting until `dlq release`.")
@yes_option
@json_option
@job_argument(required=True)
@pass_app
def requeue(app: App, job: tuple[str, ...], hold: bool, yes: bool, as_json: bool) -> None:
    """Let JOB... save, leave the GPUs and wait again; they go on from their checkpoints.

    Asks as `dlq pause` does when work would be lost.
    """
    jobs = Jobs(app.connection())

    change = partial(jobs.requeue_each, hold=hold, accept_loss=yes)
    accepted = partial(jobs.requeue_each, hold=hold, accept_loss=True)
    for_each(app, targets(jobs, job), change, leaving, as_json=as_json, accepted=accepted)


@click.command(
    epilog=examples("dlq signal 17 USR1", "dlq signal --all-ranks 17 HUP", "dlq signal 12_4 USR2")
)
@click.option("--all-ranks", is_flag=True, help="Send it to every rank, not to rank 0 alone.")
@json_option
@job_argument(several=False)
@click.argument("signal", metavar="SIG")
@pass_app
def signal(app: App, job: str, signal: str, all_ranks: bool, as_json: bool) -> None:
    """Send SIG (USR1, HUP, 10, ...) to the main process of JOB, which goes on.

    Returns as soon as the master has the order on disk; `dlq events` tells when a node has sent it.
    KILL and STOP are not sent: see `dlq cancel --kill` and `dlq pause`.
    """
    try:
        word = signal_name(signal)
    except ValueError as error:
        raise InvalidRequest(str(error), field="signal") from None
    jobs = Jobs(app.connection())

    def outcome(job: job_pb2.Job) -> str:
        # Of several jobs, ended ones are left alone.
        return f"has ended; no {word} for it" if has_ended(job) else f"{word} is sent"

    change = partial(jobs.signal_each, signal=word, all_ranks=all_ranks)
    for_each(app, targets(jobs, [job]), change, outcome, as_json=as_json)


@click.command(epilog=examples("dlq checkpoint 17", "dlq checkpoint --timeout 1h 17"))
@click.option(
    "--timeout",
    metavar="TIME",
    default=PATIENCE,
    show_default=True,
    help="Wait at most this long for the checkpoint; exit code 124.",
)
@click.option("--no-wait", is_flag=True, help="Return without waiting for the checkpoint.")
@json_option
@job_argument(several=False)
@pass_app
def checkpoint(app: App, job: str, timeout: str, no_wait: bool, as_json: bool) -> None:
    """Ask JOB to save now and go on; print the path once the checkpoint is committed.

    A script learns of it by DLQ_SAVE_FILE (`run.should_save()` of dlq_train) or by the signal that
    it names with --save-signal. One that knows neither saves when it would have saved anyway.
    """
    limit_s = duration_s("--timeout", timeout)
    connection = app.connection()
    jobs = Jobs(connection)
    job_id = one_job(jobs, job).job_id
    asked = jobs.checkpoint(job_id)
    name = shown_id(asked.job)
    if no_wait:
        _print(asked.job, as_json=as_json, text=f"job {name}: asked to save")
        return
    app.say(f"job {name} is asked to save; waiting for its checkpoint")
    until_s = None if limit_s is None else connection.clock.boottime_s() + limit_s
    with detaching(app, [job_id]):
        for value in watch_jobs(
            connection,
            [job_id],
            until_s=until_s,
            on_lost=lambda error: app.say(f"{error.what}; still trying"),
        ):
            if _saved(value, from_timestamp(asked.ask_time)):
                _print(value, as_json=as_json, text=value.checkpoint.path)
                return
            if has_ended(value) or not value.HasField("attempt_state"):
                raise IllegalTransition(
                    f"job {name} is {shown_state(value)}, and has not saved", state=""
                )
    app.say(
        f"no checkpoint within {timeout}; the request stands. Does the script look for it? "
        "(run.should_save(), or --save-signal)"
    )
    raise exit_codes.Ended(exit_codes.TIMED_OUT)


def _saved(job: job_pb2.Job, since_s: float) -> bool:
    """Whether its newest checkpoint was committed after it was asked for."""
    found = job.HasField("checkpoint") and job.checkpoint.HasField("commit_time")
    return found and from_timestamp(job.checkpoint.commit_time) > since_s


def _print(job: job_pb2.Job, *, as_json: bool, text: str) -> None:
    click.echo(document({"jobs": [job_facts(job)]}) if as_json else text)


def leaving(job: job_pb2.Job) -> str:
    """The state of a job that is told to wait again."""
    if job.stop_cause != "requeue":
        return standing(job)
    return "leaves its GPUs" if job.HasField("stop_loss") else "is saving"
