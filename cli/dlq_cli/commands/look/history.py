"""`dlq history`: ended jobs, their ends and their costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import click

from dlq.v1 import job_pb2, job_service_pb2
from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.facts.common import document
from dlq_cli.lists.listing import not_found
from dlq_cli.lists.past import PAST, ChosenColumns, parse_format, past_facts, past_table
from dlq_cli.lists.select import several_jobs
from dlq_cli.lists.since import midnight, past_instant
from dlq_cli.lists.states import parse_states
from dlq_cli.output.render import OutputLook
from dlq_cli.output.zone import local_text
from dlq_cli.words import ENDED
from dlq_client.jobs import Jobs
from dlq_common.errors import InvalidRequest, NotFound
from dlq_common.text.wire import to_timestamp

# Long lists come in pages that are quickly made: others' calls go in between.
PAGE_SIZE = 1_000
TIMES = "write 7d, 90m, 08:00, 2026-12-01T08:00, today, yesterday, now-2days or all"


@click.command(
    epilog=examples(
        "dlq history",
        "dlq history -S 7d -s failed,timed_out",
        "dlq history -S 2026-11-01 -E 2026-12-01 -a -P > november.txt",
        "dlq history -o JobID,JobName%20,State,ExitCode,gpu_hours",
        "dlq history -S 30d --json | jq '[.jobs[].gpu_hours] | add'",
    )
    + "\n\n"
    + "Columns: "
    + ", ".join(PAST)
    + "; sacct's names for them work, too."
)
@click.option("-S", "--since", metavar="TIME", help="Jobs that ended since this time.  [today]")
@click.option("-E", "--until", metavar="TIME", help="Jobs that ended before this time.  [now]")
@click.option("-u", "--user", metavar="USER", help="This user's jobs (operators).")
@click.option("-a", "--all", "everybody", is_flag=True, help="All users' jobs (operators).")
@click.option(
    "-s", "-t", "--state", metavar="STATE", help="Only these: completed,failed or CD,F,CA,TO."
)
@click.option("--name", metavar="NAME", help="Only jobs of this name.")
@click.option("-p", "--queue", metavar="QUEUE", help="Only this queue.")
@click.option("-o", "--format", "format_", metavar="COLUMNS", help="Columns; NAME%20 sets a width.")
@click.option("-P", "--parsable", is_flag=True, help="Cells between `|`, nothing cut or padded.")
@click.option("-n", "--no-header", is_flag=True, help="No headings.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="The most jobs to show.")
@click.option(
    "--after",
    type=click.IntRange(min=0),
    metavar="JOB",
    default=0,
    help="Show only higher ids, to go on with a long list.",
)
@json_option
@click.argument("job", nargs=-1)
@pass_app
def history(
    app: App,
    job: tuple[str, ...],
    since: str | None,
    until: str | None,
    user: str | None,
    everybody: bool,
    state: str | None,
    name: str | None,
    queue: str | None,
    format_: str | None,
    parsable: bool,
    no_header: bool,
    limit: int | None,
    after: int,
    as_json: bool,
) -> None:
    """List your jobs that ended today, in the order of their ids, or JOB... whenever they ended.

    EXIT is code:signal. ELAPSED is the time run, GPU_HOURS that times GPUs, over all attempts;
    LOST_GPU_HOURS of them had to be done again, because a stop came without a checkpoint.
    """
    if everybody and user:
        raise InvalidRequest("-a is everybody and -u is one")
    columns = parse_format(format_ or "")
    jobs = Jobs(app.connection())
    request = job_service_pb2.ListJobsRequest(
        page_size=min(limit or PAGE_SIZE, PAGE_SIZE),
        page_token=str(after) if after else "",
        user="*" if everybody else "" if user in (None, "me") else user or "",
        states=_states(state),
        name=name or "",
        queue=queue or "",
        job_ids=several_jobs(jobs, job),
    )
    _set_span(request, app, since, until)
    missing = [job_id for job_id in request.job_ids if not _is_there(jobs, job_id)]
    if missing and len(missing) == len(request.job_ids):
        raise not_found(missing[0])
    found = islice(_ended(jobs, request), limit)
    look = app.look()
    if as_json:
        click.echo(document({"jobs": [past_facts(each) for each in found]}))
    elif parsable:
        _print_parsable(columns, found, look, headings=not no_header)
    else:
        listed = list(found)
        click.echo(
            past_table(columns, listed, look, headings=not no_header), nl=False, color=look.color
        )
        if not listed:
            app.say(_nothing(request))
    if missing:
        for job_id in missing:
            app.say(f"there is no job {job_id}")
        raise exit_codes.Ended(exit_codes.NOT_FOUND)


def _is_there(jobs: Jobs, job_id: str) -> bool:
    """Whether it is a job that the caller may see, whether it has ended or not."""
    try:
        jobs.get(job_id)
    except NotFound:
        return False
    return True


def _states(text: str | None) -> Sequence[str]:
    states = parse_states(text)
    living = [word for word in states if word not in ENDED]
    if living:
        raise InvalidRequest(
            f"--state: no job ends as {living[0]}",
            hint=f"ends: {', '.join(sorted(ENDED))}; jobs that live: dlq status -t {living[0]}",
        )
    return states or sorted(ENDED)


def _set_span(
    request: job_service_pb2.ListJobsRequest, app: App, since: str | None, until: str | None
) -> None:
    """Set the time span of the query; named jobs may have ended at any time."""
    now_s = app.clock.now_s()
    from_s = 0.0
    if since is not None and since.strip().lower() != "all":
        from_s = past_instant(since, now_s, "--since", TIMES)
    elif since is None and until is None and not request.job_ids:
        from_s = midnight(now_s)
    request.ended_from_time.CopyFrom(to_timestamp(max(0.0, from_s)))
    if until is not None:
        before_s = past_instant(until, now_s, "--until", TIMES)
        if before_s <= from_s:
            raise InvalidRequest("--until is not after --since: no job can have ended between")
        request.ended_before_time.CopyFrom(to_timestamp(before_s))


def _ended(jobs: Jobs, request: job_service_pb2.ListJobsRequest) -> Iterator[job_pb2.Job]:
    """Page after page, each asked for when it is wanted."""
    for page in jobs.pages(request):
        yield from page.jobs


def _print_parsable(
    columns: Sequence[ChosenColumns],
    jobs: Iterator[job_pb2.Job],
    look: OutputLook,
    *,
    headings: bool,
) -> None:
    if headings:
        click.echo("|".join(each.column.cell.heading for each in columns))
    for job in jobs:
        cells = (each.text(job, look).strip().replace("|", "?") for each in columns)
        click.echo("|".join(cells))


def _nothing(request: job_service_pb2.ListJobsRequest) -> str:
    from_s = request.ended_from_time.seconds
    if request.job_ids:
        return "none of these has ended; dlq status shows how they stand"
    if not from_s:
        return "no such job has ended"
    return f"no such job has ended since {local_text(from_s)}; -S 7d or -S all looks further back"
