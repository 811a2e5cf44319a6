"""One change to each of several jobs: every one is tried, and the first failure decides the exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import click

from dlq.v1 import job_pb2
from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.facts.common import document
from dlq_cli.facts.job import job_facts
from dlq_cli.tasks import shown_id, shown_ids
from dlq_client.jobs import Edited
from dlq_common.errors import DlqError, Unavailable


def for_each(
    app: App,
    targets: Sequence[str],
    change: Callable[[str], Edited],
    outcome: Callable[[job_pb2.Job], str],
    *,
    as_json: bool,
) -> None:
    """Change the jobs one by one and tell the outcome of each, as `change_each` does."""
    changed, code = change_each(app, targets, change, outcome, quiet=as_json)
    if as_json:
        click.echo(document({"jobs": [job_facts(job) for job in changed]}))
    if code:
        raise exit_codes.Ended(code)


def change_each(
    app: App,
    targets: Sequence[str],
    change: Callable[[str], Edited],
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
    for target in targets:
        try:
            edited = change(target)
        except Unavailable:
            raise
        except DlqError as error:
            if len(targets) == 1:
                raise
            app.say(f"job {target}: {error.what}")
            code = code or exit_codes.code_of_error(error)
            continue
        changed += edited.jobs
        names = {job.job_id: shown_id(job) for job in edited.jobs}
        refused = {refusal.job_id for refusal in edited.refusals}
        done = [job for job in edited.jobs if job.job_id not in refused]
        for line in () if quiet else _lines(done, outcome):
            click.echo(line)
        for refusal in edited.refusals:
            app.say(f"job {names.get(refusal.job_id, refusal.job_id)}: {refusal.detail}")
            code = code or exit_codes.FAILURE
    return changed, code


def _lines(jobs: Sequence[job_pb2.Job], outcome: Callable[[job_pb2.Job], str]) -> Iterator[str]:
    """One line for all tasks that have become the same."""
    same: dict[str, list[job_pb2.Job]] = {}
    for job in jobs:
        same.setdefault(outcome(job), []).append(job)
    for words, members in same.items():
        yield f"job {shown_ids(members)}: {words}"
