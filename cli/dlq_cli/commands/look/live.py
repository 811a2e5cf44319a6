"""`dlq status -w`: the list, kept up to date by the stream of events."""

from __future__ import annotations

import click

from dlq.v1 import job_pb2
from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.commands.options import detaching
from dlq_cli.facts.common import document
from dlq_cli.facts.job import job_facts
from dlq_cli.lists.listing import ListLayout, Query
from dlq_cli.output.render import OutputLook
from dlq_cli.words import has_ended, shown_state
from dlq_client.jobs import Jobs
from dlq_client.watch import watch_events
from dlq_common.errors import CursorExpired

# Between two pictures on a terminal; changes in between are drawn together.
PICTURE_S = 1.0
_HOME_AND_CLEAR = "\x1b[H\x1b[J"


def watch_status(app: App, jobs: Jobs, query: Query, layout: ListLayout, *, jsonl: bool) -> None:
    """Show the jobs and then every change, until Ctrl-C or until all named jobs have ended.

    A terminal gets a picture that is redrawn. A pipe gets the list and then one line for each
    change. `jsonl` prints one object for each job and each change.
    """
    with detaching(app, list(query.job_ids)):
        if app.look().tty and not jsonl:
            _pictures(app, jobs, query, layout)
        else:
            _lines(app, jobs, query, layout, jsonl=jsonl)


def _pictures(app: App, jobs: Jobs, query: Query, layout: ListLayout) -> None:
    """Redraw at most once a PICTURE_S; silent spells are used to let run times grow."""
    connection = app.connection()
    while True:
        listed = query.ask(jobs)
        shown = {job.job_id: job for job in listed.jobs}
        cursor = listed.cursor
        # Run times grow on the master: a fresh list now and then is cheaper than guessing them.
        for _ in range(10):
            look = app.look()
            click.echo(
                _HOME_AND_CLEAR + layout.text(list(shown.values()), look), nl=False, color=True
            )
            if _all_ended(query, shown):
                return
            try:
                for message in watch_events(
                    connection,
                    job_ids=query.job_ids,
                    cursor=cursor,
                    until_s=connection.clock.boottime_s() + PICTURE_S,
                ):
                    cursor = message.event.sequence
                    if message.HasField("job"):
                        _update(shown, message.job, query)
            except CursorExpired:
                break


def _lines(app: App, jobs: Jobs, query: Query, layout: ListLayout, *, jsonl: bool) -> None:
    look = app.look()
    told: dict[str, str] = {}
    while True:
        listed = query.ask(jobs)
        shown = {job.job_id: job for job in listed.jobs}
        fresh = [job for job in listed.jobs if told.get(job.job_id) != shown_state(job)]
        _print(fresh, layout, look, jsonl=jsonl, headings=not told)
        told |= {job.job_id: shown_state(job) for job in fresh}
        try:
            if _all_ended(query, shown):
                return
            for message in watch_events(
                app.connection(),
                job_ids=query.job_ids,
                cursor=listed.cursor,
                on_lost=lambda error: app.say(f"{error.what}; still trying"),
            ):
                if not message.HasField("job") or not query.admits(message.job):
                    continue
                job = message.job
                _update(shown, job, query)
                if told.get(job.job_id) != shown_state(job):
                    told[job.job_id] = shown_state(job)
                    _print([job], layout, look, jsonl=jsonl, headings=False)
                if _all_ended(query, shown):
                    return
        except CursorExpired:
            continue
        raise exit_codes.Ended(exit_codes.UNREACHABLE)


def _print(
    jobs: list[job_pb2.Job], layout: ListLayout, look: OutputLook, *, jsonl: bool, headings: bool
) -> None:
    if jsonl:
        for job in jobs:
            click.echo(document({"job": job_facts(job)}))
    elif jobs:
        text = layout.text(jobs, look)
        first, _, rest = text.partition("\n")
        click.echo(text if headings or not layout.headings else rest or first, nl=False)


def _update(shown: dict[str, job_pb2.Job], job: job_pb2.Job, query: Query) -> None:
    if query.admits(job):
        shown[job.job_id] = job
    else:
        shown.pop(job.job_id, None)


def _all_ended(query: Query, shown: dict[str, job_pb2.Job]) -> bool:
    return bool(query.job_ids) and all(
        job_id in shown and has_ended(shown[job_id]) for job_id in query.job_ids
    )
