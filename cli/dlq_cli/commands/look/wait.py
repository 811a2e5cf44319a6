"""`dlq wait`: wait for jobs, and exit as they do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import click

from dlq.v1 import job_pb2
from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.clusters.listed import job_argument
from dlq_cli.commands.options import detaching, examples, json_option, pass_app
from dlq_cli.facts.common import document
from dlq_cli.facts.job import job_facts
from dlq_cli.jobs.held import HoldTeller, is_poison
from dlq_cli.lists.columns import where_beside_state
from dlq_cli.lists.select import several_jobs
from dlq_cli.lists.tasks import shown_id
from dlq_cli.patience import duration_s
from dlq_cli.words import has_ended, shown_state
from dlq_client.jobs import Jobs
from dlq_client.watch import watch_jobs
from dlq_common.errors import InvalidRequest

RUNNING = frozenset({"running", "profiling", "pausing"})


@click.command(
    epilog=examples(
        "dlq wait 17",
        "dlq wait 17 18 --any",
        "dlq wait train --for running --timeout 10m",
        "dlq wait 17 && echo it went well",
    )
)
@click.option("--any", "any_", is_flag=True, help="Wait for one of them.")
@click.option("--all", "all_", is_flag=True, help="Wait for all of them.  [default]")
@click.option(
    "--for",
    "for_",
    type=click.Choice(["end", "running"]),
    default="end",
    show_default=True,
    help="The event to wait for.",
)
@click.option("--timeout", metavar="TIME", help="Give up after this long: 30s, 10m; exit code 124.")
@json_option
@job_argument(required=True)
@pass_app
def wait(
    app: App,
    job: tuple[str, ...],
    any_: bool,
    all_: bool,
    for_: str,
    timeout: str | None,
    as_json: bool,
) -> None:
    """Wait for JOB...

    The exit code is the job's own, 128+n if signal n ended it, and the highest of several. It is 1
    when a job was cancelled or failed without a code. A job on hold is waited for, unless the
    master holds it because its starts fail: that exits with 1.
    """
    if any_ and all_:
        raise InvalidRequest("--any and --all contradict each other")
    timeout_s = duration_s("--timeout", timeout)
    job_ids = several_jobs(Jobs(app.connection()), job)
    with detaching(app, job_ids):
        found = wait_for(app, job_ids, any_one=any_, running=for_ == "running", timeout_s=timeout_s)
    there = {key: value for key, value in found.items() if _is_there(value, for_ == "running")}
    if as_json:
        click.echo(document({"jobs": [job_facts(value) for value in found.values()]}))
    else:
        look = app.look()
        for value in there.values():
            click.echo(
                f"{shown_id(value)} {shown_state(value)} {where_beside_state(value, look)}".rstrip()
            )
    if len(there) < (1 if any_ else len(job_ids)):
        app.say(f"waited {timeout}; not there yet: {', '.join(k for k in found if k not in there)}")
        raise exit_codes.Ended(exit_codes.TIMED_OUT)
    if code := exit_code(value for value in there.values() if _is_over(value)):
        raise exit_codes.Ended(code)


def wait_for(
    app: App,
    job_ids: Sequence[str],
    *,
    any_one: bool = False,
    running: bool = False,
    timeout_s: float | None = None,
    holds: HoldTeller | None = None,
) -> Mapping[str, job_pb2.Job]:
    """The jobs once one or all of them are over (or run), or as they are at the timeout.

    Holds are reported; a hold that will not end by itself counts as an end. NotFound when the
    master does not know one of them.
    """
    connection = app.connection()
    holds = holds or HoldTeller(app)
    until_s = None if timeout_s is None else connection.clock.boottime_s() + timeout_s
    jobs: dict[str, job_pb2.Job] = {}
    for job in watch_jobs(
        connection,
        job_ids,
        until_s=until_s,
        on_lost=lambda error: app.say(f"{error.what}; still trying"),
    ):
        jobs[job.job_id] = job
        holds.look(job)
        there = sum(_is_there(job, running) for job in jobs.values())
        if there and (any_one or there == len(job_ids)):
            break
    return {job_id: jobs[job_id] for job_id in job_ids if job_id in jobs}


def exit_code(jobs: Iterable[job_pb2.Job]) -> int:
    """The highest exit code of some jobs that are over. Members that a group has stopped well, and
    those that may end alone, do not count.
    """
    ended = list(jobs)
    well = {
        job.array_task.array_id
        for job in ended
        if job.array_task.ends == "all" and shown_state(job) == "completed"
    }
    counted = [
        job
        for job in ended
        if job.array_task.array_id not in well and job.array_task.ends != "alone"
    ]
    return max(
        (
            exit_codes.FAILURE
            if is_poison(job)
            else exit_codes.code_of_job(
                completed=shown_state(job) == "completed",
                exit_code=job.exit_code if job.HasField("exit_code") else None,
                exit_signal=job.exit_signal,
            )
            for job in counted
        ),
        default=exit_codes.OK,
    )


def _is_there(job: job_pb2.Job, running: bool) -> bool:
    return _is_over(job) or (running and shown_state(job) in RUNNING)


def _is_over(job: job_pb2.Job) -> bool:
    return has_ended(job) or is_poison(job)
