"""`dlq resubmit`: a job once more, perhaps with some of its spec changed."""

from __future__ import annotations

import os

import click

from dlq.v1 import job_pb2
from dlq_cli.app import App
from dlq_cli.commands.jobs.submitted import Manner, submit_spec
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.lists.select import one_job, own_spec
from dlq_cli.spec.stored import changed, only_task
from dlq_client.jobs import Jobs
from dlq_common.errors import InvalidRequest


@click.command(
    epilog=examples(
        "dlq resubmit 17",
        "dlq resubmit 17 --set time_limit=2d --set resources.gpus_total=16",
        "dlq resubmit 17 --set env.LR=0.01 --unset labels.team --test-only",
        "dlq resubmit train --set image=registry.lab/train:2 -W",
    )
)
@click.option(
    "--set",
    "sets",
    metavar="KEY=VALUE",
    multiple=True,
    help="Another value, by a spec file's key: time_limit=2h, env.LR=0.1. May be repeated.",
)
@click.option(
    "--unset",
    "unsets",
    metavar="KEY",
    multiple=True,
    help="Leave a key to its default: queue, env.LR, labels. May be repeated.",
)
@click.option("-W", "--wait", "wait_end", is_flag=True, help="Wait for its end; exit as it does.")
@click.option("-f", "--follow", is_flag=True, help="Follow its output to the end, like --wait.")
@click.option("--parsable", is_flag=True, help="Print the id alone.")
@click.option(
    "--test-only", is_flag=True, help="Check everything and show the result, without submitting."
)
@click.option("--request-id", metavar="TEXT", help="Submit at most once under this key.")
@json_option
@click.argument("job")
@pass_app
def resubmit(
    app: App,
    job: str,
    sets: tuple[str, ...],
    unsets: tuple[str, ...],
    wait_end: bool,
    follow: bool,
    parsable: bool,
    test_only: bool,
    request_id: str | None,
    as_json: bool,
) -> None:
    """Queue the spec of JOB, which may have ended long ago, as a new job.

    It has the parts of JOB at its submission: its script and its environment. Only your own jobs:
    their environment may hold secrets. Checkpoints are not taken along, unless the spec names their
    directory. Of an array's task only that index is queued again.
    """
    connection = app.connection()
    jobs = Jobs(connection)
    job_id = one_job(jobs, job).job_id
    answer = own_spec(jobs, job_id, connection.identity.user)
    if answer.spec.interactive.attended:
        raise InvalidRequest(f"job {job_id} was kept by a client, and its program is gone with it")
    if answer.spec.interactive.stdin:
        answer.spec.ClearField("interactive")
        app.say(f"job {job_id} had a stdin; the new job's is empty")
    made = changed(answer.spec, f"job {job_id}", sets, unsets, os.environ)
    if answer.job.HasField("array_task") and made.spec.origins.get("array") == f"job {job_id}":
        only_task(made.message, answer.job.array_task.index)
        app.say(f"this task alone; more of its array: --set array={_indexes(answer.spec)}")
    manner = Manner(parsable=parsable, as_json=as_json, wait=wait_end, follow=follow)
    submit_spec(
        app,
        made.spec,
        manner,
        request_id=request_id or "",
        test_only=test_only,
        message=made.message,
        command="resubmit",
    )


def _indexes(spec: job_pb2.JobSpec) -> str:
    """The indexes of an array, as they are written."""
    return ",".join(
        f"{each.first}"
        if each.first == each.last
        else f"{each.first}-{each.last}" + (f":{each.step}" if each.step > 1 else "")
        for each in spec.array.ranges
    )
