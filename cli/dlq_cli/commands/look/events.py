"""`dlq events`: events of jobs and nodes, with time and author."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import click

from dlq.v1 import event_pb2, job_service_pb2
from dlq_cli.app import App
from dlq_cli.clusters.listed import job_argument
from dlq_cli.commands.options import detaching, examples, json_option, pass_app
from dlq_cli.facts.cluster import event_facts
from dlq_cli.facts.common import document
from dlq_cli.lists.select import several_jobs
from dlq_cli.lists.since import past_instant
from dlq_cli.output.render import OutputLook, sentence, when
from dlq_cli.words import has_ended
from dlq_client.jobs import Jobs
from dlq_client.watch import watch_events
from dlq_common.errors import InvalidRequest
from dlq_common.text.hostlist import expand_hostlist
from dlq_common.text.wire import from_timestamp, to_timestamp

TIMES = "write 2h, 7d, 08:00, 2026-12-01T08:00, today or yesterday"


class Asked(NamedTuple):
    """The jobs (none: all that the caller may see), and the kinds of events."""

    job_ids: Sequence[str]
    chosen: event_pb2.EventFilter

    @property
    def all_kinds(self) -> bool:
        """Whether whole stories are asked for."""
        return not self.chosen.ByteSize()


@click.command(
    epilog=examples(
        "dlq events 17",
        "dlq events -w 17 18",
        "dlq events --since 2h --type 'promise_*'",
        "dlq events --node gpu[01-04] --since today",
    )
)
@click.option("-w", "--watch", is_flag=True, help="Go on with new events.")
@click.option("-S", "--since", metavar="TIME", help="Only events since: 2h ago, 08:00, a date.")
@click.option(
    "-t",
    "--type",
    "kinds",
    multiple=True,
    metavar="KIND,...",
    help="Only events of these kinds, as in the second column; 'promise_*' matches all that begin "
    "so.",
)
@click.option("--node", "nodes", multiple=True, metavar="HOSTS", help="Only events of these nodes.")
@click.option("--jsonl", is_flag=True, help="One JSON object a line, for each event.")
@json_option
@job_argument()
@pass_app
def events(
    app: App,
    job: tuple[str, ...],
    watch: bool,
    since: str | None,
    kinds: tuple[str, ...],
    nodes: tuple[str, ...],
    jsonl: bool,
    as_json: bool,
) -> None:
    """The journal of each JOB, or of all your jobs, oldest first. With -w it ends when every JOB
    has.

    Operators and admins see all jobs, and the events of nodes and of the cluster.
    """
    if watch and as_json:
        raise InvalidRequest("--json is one object and -w has no end", hint="use --jsonl")
    chosen = _chosen(app, since, kinds, nodes)
    jobs = Jobs(app.connection())
    asked = Asked(several_jobs(jobs, job), chosen)
    if as_json:
        found = jobs.events(*asked.job_ids, chosen=asked.chosen)
        click.echo(document({"events": [event_facts(event) for event in found]}))
        return
    look = app.look()
    with detaching(app, asked.job_ids):
        last = 0
        for event in _events(app, jobs, asked, watch=watch):
            if event.sequence > last:
                click.echo(_line(event, look, jsonl))
                last = event.sequence
    if not last and not asked.all_kinds:
        app.say("there are no such events")


def _chosen(
    app: App, since: str | None, kinds: Sequence[str], nodes: Sequence[str]
) -> event_pb2.EventFilter:
    chosen = event_pb2.EventFilter(kinds=_words(kinds))
    try:
        chosen.node_ids.extend(name for word in nodes for name in expand_hostlist(word))
    except ValueError as error:
        raise InvalidRequest(f"--node: {error}") from None
    if since is not None:
        from_s = past_instant(since, app.clock.now_s(), "--since", TIMES)
        chosen.since_time.CopyFrom(to_timestamp(from_s))
    return chosen


def _words(texts: Sequence[str]) -> list[str]:
    words = [word.strip() for text in texts for word in text.split(",")]
    if not all(words):
        raise InvalidRequest("--type: an empty word", hint="such as --type job_requeued")
    return words


def _events(app: App, jobs: Jobs, asked: Asked, *, watch: bool) -> Iterator[event_pb2.Event]:
    """The past events, then new ones. An event at the seam may come twice."""
    cursor = 0
    for page in jobs.event_pages(*asked.job_ids, chosen=asked.chosen):
        if not cursor and asked.all_kinds:
            _say_what_is_gone(app, page, asked.job_ids)
        yield from page.events
        # A master that does not say where its pages end is an older one.
        cursor = page.cursor or max((event.sequence for event in page.events), default=cursor)
    alive = {job_id for job_id in asked.job_ids if watch and not has_ended(jobs.get(job_id).job)}
    if not watch or (asked.job_ids and not alive):
        return
    for message in watch_events(
        app.connection(),
        job_ids=asked.job_ids,
        chosen=asked.chosen,
        cursor=cursor or -1,
        on_lost=lambda error: app.say(f"{error.what}; still trying"),
    ):
        if message.HasField("event"):
            yield message.event
        if message.job.job_id in alive and has_ended(message.job):
            alive.discard(message.job.job_id)
            if not alive:
                break
    # A message carries the job's present state: events of its last turn may still be to come.
    yield from jobs.events(*asked.job_ids, chosen=asked.chosen)


def _say_what_is_gone(
    app: App, first: job_service_pb2.ListEventsResponse, job_ids: Sequence[str]
) -> None:
    """The journal is not kept for ever: this says that older events are missing."""
    begins: dict[str, str] = {}
    for event in first.events:
        begins.setdefault(event.job_id, event.kind)
    # Of one that is not on this page, another page has the beginning.
    unknown = "job_submitted" if first.next_page_token else ""
    gone = [job_id for job_id in job_ids if begins.get(job_id, unknown) != "job_submitted"]
    if first.horizon and (gone or not job_ids):
        whose = f"job {', '.join(gone)}" if gone else "jobs that have ended"
        app.say(
            f"older events of {whose} are no longer kept; dlq show and dlq history have the rest"
        )


def _line(event: event_pb2.Event, look: OutputLook, jsonl: bool) -> str:
    if jsonl:
        return document({"event": event_facts(event)})
    job = f"job {event.job_id}" if event.job_id else ""
    subject = f"{job}.{event.attempt}" if event.attempt else job
    about = " ".join(filter(None, (event.node_id, about_of(event))))
    time = when(from_timestamp(event.event_time), look)
    line = f"{time:<10}  {event.kind:<22}  {subject:<12}  {event.actor:<16}  {about}"
    return sentence(line.rstrip(), look)


def about_of(event: event_pb2.Event) -> str:
    """Why it happened, and the facts of this kind of event."""
    data = " ".join(f"{name}={text}" for name, text in sorted(event.data.items()))
    return " ".join(filter(None, (event.cause, data)))
