"""`dlq report usage|waits|promises|preemptions`: from the books, and from jobs that have ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import click

from dlq.v1 import job_pb2, job_service_pb2
from dlq_cli.app import App
from dlq_cli.commands.options import F, examples, json_option, pass_app
from dlq_cli.commands.report.usage import one_form, show_usage, span_of, tell_in_form
from dlq_cli.facts.common import Facts
from dlq_cli.lists import reports
from dlq_cli.output.rows import rows_csv, rows_text
from dlq_cli.words import ENDED
from dlq_client.jobs import Jobs
from dlq_common.text.wire import to_timestamp

PAGE_SIZE = 1_000
WORDS = ("gpus", "state", "ground", "user")


def _span_options(command: F) -> F:
    """The time span, and the form of the answer."""
    for option in (
        json_option,
        click.option("--csv", "as_csv", is_flag=True, help="Comma-separated lines."),
        click.option("-E", "--until", metavar="TIME", help="End of the time span.  [now]"),
        click.option("-S", "--since", metavar="TIME", help="Begin of the time span.  [a week]"),
    ):
        command = option(command)
    return command


@click.command(epilog=examples("dlq report usage", "dlq report usage -S 30d --csv"))
@_span_options
@pass_app
def usage(app: App, since: str | None, until: str | None, as_csv: bool, as_json: bool) -> None:
    """GPU-hours of all users by team, class and pool, and of GPUs without a job."""
    by = ("team", "class", "pool")
    show_usage(app, since, until, by, as_csv=as_csv, as_json=as_json)


@click.command(epilog=examples("dlq report waits", "dlq report waits -S 30d --csv"))
@_span_options
@pass_app
def waits(app: App, since: str | None, until: str | None, as_csv: bool, as_json: bool) -> None:
    """Waiting times of ended jobs: until the first start, and in all, in seconds.

    GPUS is the requested number. P50: half of them did not wait for longer; P90: nine of ten.
    """
    _show(app, reports.waits, since, until, as_csv=as_csv, as_json=as_json)


@click.command(epilog=examples("dlq report promises", "dlq report promises -S 30d --json"))
@_span_options
@pass_app
def promises(app: App, since: str | None, until: str | None, as_csv: bool, as_json: bool) -> None:
    """Ended jobs with deadlines: how many were promised, and how many ended in time.

    In time is by the deadline that was promised; where none was, by the last one. GROUND says why
    nothing was promised; `promise_broken` and `overrun` are promises that were given up.
    """
    _show(app, reports.promises, since, until, as_csv=as_csv, as_json=as_json)


@click.command(epilog=examples("dlq report preemptions", "dlq report preemptions -S 30d --csv"))
@_span_options
@pass_app
def preemptions(
    app: App, since: str | None, until: str | None, as_csv: bool, as_json: bool
) -> None:
    """Ended jobs, by user: how often they had to leave their GPUs, and the cost.

    FOR_OTHERS: of the preemptions, those for another job by the order of the policy; the rest are
    drains, reclaims and people's wishes. LOST is work that had to be done again for any reason.
    """
    _show(app, reports.preemptions, since, until, as_csv=as_csv, as_json=as_json)


# --- helpers, in order of use ---------------------------------------------------------------------


def _show(
    app: App,
    report: Callable[[Iterable[job_pb2.Job]], list[Facts]],
    since: str | None,
    until: str | None,
    *,
    as_csv: bool,
    as_json: bool,
) -> None:
    one_form(as_csv=as_csv, as_json=as_json)
    rows = report(_ended(app, since, until))
    csv = partial(rows_csv, rows, list(rows[0]) if rows else [])
    text = partial(rows_text, rows, WORDS)
    nothing = "" if rows else "no such job has ended in this time; -S 30d looks further back"
    tell_in_form(app, {"rows": rows}, csv, text, nothing, as_csv=as_csv, as_json=as_json)


def _ended(app: App, since: str | None, until: str | None) -> Iterator[job_pb2.Job]:
    """All users' jobs that ended in the span."""
    from_s, until_s = span_of(app, since, until)
    request = job_service_pb2.ListJobsRequest(
        page_size=PAGE_SIZE,
        user="*",
        states=sorted(ENDED),
        ended_from_time=to_timestamp(max(0.0, from_s)),
        ended_before_time=None if until_s is None else to_timestamp(until_s),
    )
    for page in Jobs(app.connection()).pages(request):
        yield from page.jobs
