"""One change to each of several jobs: every one is tried, and the first failure decides the exit
code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import click

from dlq.v1 import job_pb2
from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.facts.common import document
from dlq_cli.facts.job import job_facts
from dlq_cli.lists.tasks import shown_id, shown_ids
from dlq_cli.output.render import clean_line
from dlq_client.jobs import Edited
from dlq_common.errors import DlqError, Unavailable, WorkWouldBeLost, error_from

MOST_NAMED = 20  # jobs of which a question says each


class Losing(NamedTuple):
    """A job that refused because its work would be lost."""

    target: str
    words: str


def for_each(
    app: App,
    targets: Sequence[str],
    change: Callable[[str], Edited],
    outcome: Callable[[job_pb2.Job], str],
    *,
    as_json: bool,
    accepted: Callable[[str], Edited] | None = None,
) -> None:
    """Change the jobs one by one and tell the outcome of each, as `change_each` does.

    `accepted` is the same change by a caller that accepts lost work. Jobs that refuse `change` for
    that reason are asked for together, after all others have changed.
    """
    losing: list[Losing] | None = None if accepted is None else []
    changed, code = change_each(app, targets, change, outcome, quiet=as_json, losing=losing)
    try:
        if losing and accepted is not None:
            _ask(app, losing, several=len(changed) > 0)
            again = [one.target for one in losing]
            more, failed = change_each(app, again, accepted, outcome, quiet=as_json)
            changed, code = _latest([*changed, *more]), code or failed
    finally:
        if as_json and (changed or not losing):
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
    losing: list[Losing] | None = None,
) -> tuple[list[job_pb2.Job], int]:
    """The jobs after their changes, and the exit code of the first refusal.

    A refusal of one does not spare the others; a master that is away does. A single job's refusal
    is raised. With `losing`, jobs that would lose work are put in there instead.
    """
    changed: list[job_pb2.Job] = []
    code = exit_codes.OK
    for target in targets:
        try:
            edited = change(target)
        except Unavailable:
            raise
        except DlqError as error:
            if losing is not None and isinstance(error, WorkWouldBeLost):
                losing.append(Losing(target, error.what))
                continue
            if len(targets) == 1:
                raise
            app.say(_named(target, error.what))
            code = code or exit_codes.code_of_error(error)
            continue
        changed += edited.jobs
        names = {job.job_id: shown_id(job) for job in edited.jobs}
        refused = {refusal.job_id for refusal in edited.refusals}
        done = [job for job in edited.jobs if job.job_id not in refused]
        for line in () if quiet else _lines(done, outcome):
            click.echo(line)
        for loss in edited.losses:
            app.say(f"{loss.detail} is lost")
        for refusal in edited.refusals:
            if losing is not None and refusal.reason == WorkWouldBeLost.reason:
                losing.append(Losing(refusal.job_id, refusal.detail))
                continue
            app.say(_named(names.get(refusal.job_id, refusal.job_id), refusal.detail))
            code = code or exit_codes.FAILURE
    return changed, code


def tell_edited(
    app: App, edited: Edited, outcome: Callable[[job_pb2.Job], str], *, quiet: bool
) -> int:
    """Tell the outcome of one change of many jobs; the exit code of the first refusal."""
    refused = {refusal.job_id for refusal in edited.refusals}
    done: dict[str, list[job_pb2.Job]] = {}
    for job in () if quiet else edited.jobs:
        if job.job_id not in refused:
            done.setdefault(job.array_task.array_id or job.job_id, []).append(job)
    for together in done.values():
        for line in _lines(together, outcome):
            click.echo(line)
    code = exit_codes.OK
    for refusal in edited.refusals:
        error = error_from(refusal.reason, refusal.detail, {})
        app.say(_named(refusal.job_id, error.what))
        code = code or exit_codes.code_of_error(error)
    return code


def _ask(app: App, losing: Sequence[Losing], *, several: bool) -> None:
    """Ask once for all of them."""
    told = [one.words for one in losing[:MOST_NAMED]]
    if len(losing) > MOST_NAMED:
        told.append(f"and that of {len(losing) - MOST_NAMED} more jobs")
    declined = "these jobs go on" if several else "nothing was done"
    app.confirm(clean_line("; ".join(told)), yes=False, declined=declined)


def _named(name: str, words: str) -> str:
    """The words with the job's name before them, unless they begin with it themselves."""
    return words if words.startswith(f"job {name} ") else f"job {name}: {words}"


def _latest(jobs: Sequence[job_pb2.Job]) -> list[job_pb2.Job]:
    """Each once, as it was last told."""
    return list({job.job_id: job for job in jobs}.values())


def _lines(jobs: Sequence[job_pb2.Job], outcome: Callable[[job_pb2.Job], str]) -> Iterator[str]:
    """One line for all tasks that have become the same."""
    same: dict[str, list[job_pb2.Job]] = {}
    for job in jobs:
        same.setdefault(outcome(job), []).append(job)
    for words, members in same.items():
        yield f"job {shown_ids(members)}: {words}"
