"""`dlq events`: what happened to a job, when, and who did it."""

from __future__ import annotations

from collections.abc import Iterator

import click

from dlq.v1 import event_pb2, job_service_pb2
from dlq_cli.app import App
from dlq_cli.commands.options import detaching, examples, json_option, pass_app
from dlq_cli.facts.cluster import event_facts
from dlq_cli.facts.common import document
from dlq_cli.render import Look, clean_line, when
from dlq_cli.select import one_job
from dlq_cli.words import has_ended
from dlq_client.jobs import Jobs
from dlq_client.watch import watch_events
from dlq_common.errors import InvalidRequest
from dlq_common.wire import from_timestamp


@click.command(epilog=examples("dlq events 17", "dlq events -w 17", "dlq events -w --jsonl"))
@click.option("-w", "--watch", is_flag=True, help="Go on with what happens from now on.")
@click.option("--jsonl", is_flag=True, help="One JSON object a line, for each event.")
@json_option
@click.argument("job", required=False)
@pass_app
def events(app: App, job: str | None, watch: bool, jsonl: bool, as_json: bool) -> None:
    """The journal of JOB, or of all your jobs, oldest first. With -w it ends when JOB does."""
    if watch and as_json:
        raise InvalidRequest("--json is one object and -w has no end", hint="use --jsonl")
    jobs = Jobs(app.connection())
    job_id = one_job(jobs, job).job_id if job else ""
    if as_json:
        click.echo(document({"events": [event_facts(event) for event in jobs.events(job_id)]}))
        return
    look = app.look()
    with detaching(app, [job_id] if job_id else []):
        last = 0
        for event in _events(app, jobs, job_id, watch=watch):
            if event.sequence > last:
                click.echo(_line(event, look, jsonl))
                last = event.sequence


def _events(app: App, jobs: Jobs, job_id: str, *, watch: bool) -> Iterator[event_pb2.Event]:
    """What has happened, then what happens; some come twice, where the one meets the other."""
    cursor = 0
    for page in jobs.event_pages(job_id):
        if not cursor:
            _say_what_is_gone(app, page, job_id)
        yield from page.events
        # A master that does not say where its pages end is an older one.
        cursor = page.cursor or max((event.sequence for event in page.events), default=cursor)
    if not watch or (job_id and has_ended(jobs.get(job_id).job)):
        return
    for message in watch_events(
        app.connection(),
        job_ids=[job_id] if job_id else [],
        cursor=cursor or -1,
        on_lost=lambda error: app.say(f"{error.what}; still trying"),
    ):
        yield message.event
        if job_id and has_ended(message.job):
            break
    # A message carries the job as it is by now: events of its last turn may still be to come.
    yield from jobs.events(job_id)


def _say_what_is_gone(app: App, first: job_service_pb2.ListEventsResponse, job_id: str) -> None:
    """The journal is not kept for ever: a story without its beginning is told as one."""
    begun = bool(first.events) and first.events[0].kind == "job_submitted"
    if first.horizon and not (job_id and begun):
        whose = f"job {job_id}" if job_id else "jobs that have ended"
        app.say(
            f"older events of {whose} are no longer kept; dlq show and dlq history have the rest"
        )


def _line(event: event_pb2.Event, look: Look, jsonl: bool) -> str:
    if jsonl:
        return document({"event": event_facts(event)})
    job = f"job {event.job_id}" if event.job_id else ""
    subject = f"{job}.{event.attempt}" if event.attempt else job
    data = " ".join(f"{name}={text}" for name, text in sorted(event.data.items()))
    about = " ".join(filter(None, (event.node_id, event.cause, data)))
    time = when(from_timestamp(event.event_time), look)
    return clean_line(
        f"{time:<10}  {event.kind:<22}  {subject:<12}  {event.actor:<16}  {about}".rstrip()
    )
