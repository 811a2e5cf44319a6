"""`dlq estimate`: when a job will start and end, one that is there or one that is not submitted."""

from __future__ import annotations

import os
from typing import Any

import click

from dlq_cli.app import App
from dlq_cli.commands.jobs.submit import SubmitCommand, asked_spec
from dlq_cli.commands.options import examples
from dlq_cli.output import json_errors
from dlq_cli.quiet import quiet_grpc
from dlq_common.errors import InvalidRequest
from dlq_common.text.arrays import parse_tasks

WAIT_S = 20.0


@click.command(
    cls=SubmitCommand,
    context_settings={"allow_interspersed_args": False},
    options_metavar="[FLAGS]",
    epilog=examples(
        "dlq estimate 17",
        "dlq estimate --gpus 8 -t 1-00:00:00 train.sh",
        "dlq estimate --json job.toml | jq -r .start.likely_time",
        "dlq estimate --gpus 64 -t 4:00:00 -- true",
    ),
)
@click.option("--wrap", metavar="LINE", help="Run one line by /bin/sh instead of a script.")
@click.option(
    "--json", "as_json", is_flag=True, callback=json_errors.ask, help="One JSON object on stdout."
)
@click.argument("source", nargs=-1, type=click.UNPROCESSED, metavar="JOB | SCRIPT | SPEC | -- CMD")
@click.pass_context
def estimate(
    ctx: click.Context, /, source: tuple[str, ...], wrap: str | None, as_json: bool, **flags: Any
) -> None:
    """When a job will start and end, if nothing else changes. Nothing is submitted.

    The master simulates the cluster's present state several times, with run times of similar jobs.
    One time in ten it is earlier, one time in ten later than the range.
    """
    app: App = ctx.obj
    job_id = _job_named(source[:1]) if wrap is None and ctx.meta["dlq.command"] is None else None
    if job_id is not None and source[1:] == (
        "--json",
    ):  # a job has no arguments that it could mean
        source, as_json = source[:1], True
    if job_id is not None and len(source) > 1:
        raise InvalidRequest(
            f"a job takes no arguments, and {source[1]!r} follows it",
            hint="one job at a time: dlq estimate 17",
        )
    spec = None if job_id is not None else asked_spec(ctx, source, wrap, flags)
    with quiet_grpc():
        from dlq_cli.commands.look.estimated import estimate_job, estimate_spec
    if job_id is not None:
        estimate_job(app, job_id, as_json=as_json, wait_s=WAIT_S)
    elif spec is not None:
        estimate_spec(app, spec, as_json=as_json, wait_s=WAIT_S)


def _job_named(source: tuple[str, ...]) -> str | None:
    """The job that `source` names: a number, unless there is a file of that name."""
    if not source or os.path.exists(source[0]):
        return None
    word = source[0]
    try:
        is_task = parse_tasks(word) is not None
    except ValueError:
        return None
    return word if is_task or (word.isascii() and word.isdecimal()) else None
