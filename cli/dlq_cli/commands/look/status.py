"""`dlq status`: a list of jobs, how one stands, or both live."""

from __future__ import annotations

import click

from dlq.v1 import job_pb2
from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.clusters.listed import job_argument
from dlq_cli.commands.look.live import watch_status
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.facts.job_list import jobs_document
from dlq_cli.lists.columns import COLUMNS, DEFAULT, parse_format
from dlq_cli.lists.listing import ListLayout, Query, not_found, order_of
from dlq_cli.lists.select import several_jobs
from dlq_cli.lists.since import ended_within_s
from dlq_cli.lists.states import parse_states
from dlq_cli.words import ENDED, has_ended
from dlq_client.jobs import Jobs
from dlq_common.errors import InvalidRequest

# Ended jobs stay in the list this long.
RECENT_S = 3600


@click.command(
    epilog=examples(
        "dlq status",
        "dlq status 17",
        "dlq status -a -t running,queued --sort -gpus",
        "dlq status -a --search resnet --limit 20 --sort -submit",
        "dlq status -w",
        "dlq status --since 1d -o id,name,state,end,exit",
        "dlq status -o '%.8i %20j %t %R'",
        "dlq status --json | jq -r '.jobs[] | select(.state==\"failed\") | .job_id'",
    )
    + "\n\n"
    + "Columns: "
    + ", ".join(COLUMNS)
    + "."
)
@click.option(
    "-a",
    "--all",
    "everybody",
    is_flag=True,
    help="All users' jobs; of other users' jobs only the GPUs and the time.",
)
@click.option("-u", "--user", metavar="USER", help="This user's jobs.")
@click.option("-t", "--state", metavar="STATE", help="Only these states: running,queued or R,PD.")
@click.option("--team", metavar="TEAM", default="", help="Only jobs of this team.")
@click.option("--node", metavar="HOST", default="", help="Only jobs that run on this node.")
@click.option("--search", metavar="WORDS", default="", help="Only with these in name or user.")
@click.option("--limit", metavar="N", type=click.IntRange(1, 1_000_000), help="Only the first N.")
@click.option("--since", metavar="TIME", help="Jobs that ended since: 2d, 2026-12-01, all.  [1h]")
@click.option("-w", "--watch", is_flag=True, help="Stay and show changes; ends with named jobs.")
@click.option("--jsonl", is_flag=True, help="With -w: one JSON object for each change.")
@click.option("-o", "--format", "format_", metavar="COLUMNS", help="Columns, or squeue's %letters.")
@click.option("--sort", metavar="COLUMNS", default="", help="Order: `state,-gpus`.")
@click.option("-q", "--quiet", is_flag=True, help="Ids only.")
@click.option("--no-header", is_flag=True, help="No headings.")
@click.option("-r", "--array", "one_line_each", is_flag=True, help="A line for every array task.")
@json_option
@job_argument()
@pass_app
def status(
    app: App,
    job: tuple[str, ...],
    everybody: bool,
    user: str | None,
    state: str | None,
    team: str,
    node: str,
    search: str,
    limit: int | None,
    since: str | None,
    watch: bool,
    jsonl: bool,
    format_: str | None,
    sort: str,
    quiet: bool,
    no_header: bool,
    one_line_each: bool,
    as_json: bool,
) -> None:
    """List your jobs: the living ones, and those that ended in the last hour.

    With JOB... only those; a single one is shown with the reason why it waits.
    """
    some = limit is not None or any((team, node, search))
    _check_flags(watch=watch, as_json=as_json, jsonl=jsonl, some=some)
    jobs = Jobs(app.connection())
    query = Query(
        job_ids=several_jobs(jobs, job),
        user=user_of(everybody, user),
        states=parse_states(state),
        ended_within_s=None if job else ended_within_s(since, app.clock.now_s(), RECENT_S),
        team=team,
        node=node,
        search=search,
        order="" if limit is None else order_of(sort),
        limit=limit,
    )
    layout = ListLayout(
        columns=parse_format(format_) if format_ else DEFAULT,
        headings=not no_header,
        ids_only=quiet,
        sort=sort if limit is None else "",
        one_line_each=one_line_each,
    )
    if watch and query.user not in ("", jobs.caller) and not jobs.sees_all:
        raise InvalidRequest(
            "other people's jobs are listed, and not watched", hint="watch -n 5 dlq status -a"
        )
    if watch:
        watch_status(app, jobs, query, layout, jsonl=jsonl)
        return
    answer = query.found(jobs)
    found, missing = answer.jobs, query.missing(answer)
    if missing and not found:
        raise not_found(missing[0])
    look = app.look()
    if as_json:
        # Nothing in JSON is a colour that a pipe must not see: 15 MB are not searched for one.
        click.echo(jobs_document(layout.ordered(found, look), answer.total), color=True)
    elif len(query.job_ids) == 1 and len(found) == 1 and not (format_ or quiet):
        _detail(app, jobs, found[0])
    else:
        click.echo(layout.text(found, look), nl=False, color=look.color)
        if not found and not quiet:
            app.say(_nothing(query))
        if len(found) < answer.total:
            app.say(f"{len(found):,} of {answer.total:,} jobs are shown")
    if missing:
        for job_id in missing:
            app.say(f"there is no job {job_id}")
        raise exit_codes.Ended(exit_codes.NOT_FOUND)


def _check_flags(*, watch: bool, as_json: bool, jsonl: bool, some: bool) -> None:
    """`some`: the master leaves jobs out by more than their states."""
    if watch and as_json:
        raise InvalidRequest("--json is one object and -w has no end", hint="use -w --jsonl")
    if jsonl and not watch:
        raise InvalidRequest("--jsonl goes with -w", hint="one list: --json")
    if watch and some:
        raise InvalidRequest(
            "-w shows every change, so it takes no --limit, --search, --team and no --node",
            hint="watch -n 5 dlq status --limit 20",
        )


def user_of(everybody: bool, user: str | None) -> str:
    """The owner that a list is asked for: `*` for everybody, empty for the caller."""
    if everybody and user:
        raise InvalidRequest("-a is everybody and -u is one")
    return "*" if everybody else "" if user in (None, "me") else user or ""


def _detail(app: App, jobs: Jobs, job: job_pb2.Job) -> None:
    """One job and, when it does not run, why."""
    from dlq_cli.lists.story import job_text, reason_text

    look = app.look()
    click.echo(job_text(job, look), nl=False, color=look.color)
    if has_ended(job) or job.HasField("attempt_state"):
        return
    for reason in jobs.explain(job.job_id).reasons:
        click.echo(f"{reason.code}: {reason_text(reason, look)}")


def _nothing(query: Query) -> str:
    if query.chooses:
        return "no job fits"
    if query.states and not set(query.states) & ENDED:
        return "no job is in these states"
    if query.user not in ("", "*"):
        return (
            f"no job of {query.user} lives, and none ended lately, or nobody has that name; "
            "-a shows everybody's"
        )
    return "no jobs live, and none ended lately; --since all shows older ones"
