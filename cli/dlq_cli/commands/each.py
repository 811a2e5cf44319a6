"""One change to each of several jobs: every one is tried, and the first failure decides the exit code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import click

from dlq.v1 import job_pb2
from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.facts.common import document
from dlq_cli.facts.job import job_facts
from dlq_common.errors import DlqError, Unavailable


def for_each(
    app: App,
    job_ids: Sequence[str],
    change: Callable[[str], job_pb2.Job],
    outcome: Callable[[job_pb2.Job], str],
    *,
    as_json: bool,
) -> None:
    """Change the jobs one by one and tell the outcome of each, as `change_each` does."""
    changed, code = change_each(app, job_ids, change, outcome, quiet=as_json)
    if as_json:
        click.echo(document({"jobs": [job_facts(job) for job in changed]}))
    if code:
        raise exit_codes.Ended(code)


def change_each(
    app: App,
    job_ids: Sequence[str],
    change: Callable[[str], job_pb2.Job],
    outcome: Callable[[job_pb2.Job], str],
    *,
    quiet: bool,
) -> tuple[list[job_pb2.Job], int]:
    """The jobs after their changes, and the exit code of the first refusal.

    A refusal of one does not spare the others; a master that is away does. A single job's refusal
    is raised.
    """
    changed: list[job_pb2.Job] = []
    code = exit_codes.OK
    for job_id in job_ids:
        try:
            job = change(job_id)
        except Unavailable:
            raise
        except DlqError as error:
            if len(job_ids) == 1:
                raise
            app.say(f"job {job_id}: {error.what}")
            code = code or exit_codes.code_of_error(error)
            continue
        changed.append(job)
        if not quiet:
            click.echo(f"job {job.job_id}: {outcome(job)}")
    return changed, code
