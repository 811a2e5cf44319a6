"""`dlq logs`: the output of a job, to its end if wished, over attempts and restarts of the
master.
"""

from __future__ import annotations

import sys

import click

from dlq.v1 import job_pb2, job_service_pb2
from dlq_cli.app import App
from dlq_cli.clusters.listed import job_argument
from dlq_cli.commands.options import detaching, examples, pass_app
from dlq_cli.jobs.attempts import next_attempt
from dlq_cli.jobs.held import HoldTeller
from dlq_cli.jobs.outputs import Outputs, follow_ranks, print_tails
from dlq_cli.jobs.streams import ALL, stream_of
from dlq_cli.lists.select import one_job
from dlq_cli.words import ATTEMPT_STATES, shown_state
from dlq_client.jobs import Jobs
from dlq_common.errors import (
    DlqError,
    IllegalTransition,
    InvalidRequest,
    NotFound,
    Unavailable,
)
from dlq_common.text.hostlist import compress_hostlist

DEFAULT_LINES = 200
# A job may stay in these states for long: people are told the reason.
WAITING = frozenset({"pending", "queued"})


@click.command(
    epilog=examples(
        "dlq logs 17",
        "dlq logs -f 17",
        "dlq logs -n all 17 > out.txt",
        "dlq logs --rank all --attempt 1 17",
        "dlq logs --all -n all 17",
    )
)
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option(
    "-n",
    "--lines",
    metavar="N",
    default=str(DEFAULT_LINES),
    show_default=True,
    help="Number of last lines, or `all`.",
)
@click.option(
    "--rank",
    metavar="R",
    default="0",
    show_default=True,
    help="The node rank; with --launch per-gpu a process's RANK; worker:N or ps:N; or `all`.",
)
@click.option("--attempt", type=click.IntRange(min=1), metavar="K", help="[default: the last]")
@click.option("--all", "every", is_flag=True, help="Of all attempts, the first one first.")
@click.option("--raw", is_flag=True, help="Print all control sequences, also on a terminal.")
@job_argument(several=False)
@pass_app
def logs(
    app: App,
    job: str,
    follow: bool,
    lines: str,
    rank: str,
    attempt: int | None,
    every: bool,
    raw: bool,
) -> None:
    """The output of JOB, stdout and stderr as one.

    With -f every line is printed once, also over restarts, and a new attempt's output follows the
    last one's. Ctrl-C leaves; it does not end the job.

    With --all a line before the output of each attempt names the attempt. Nodes keep the output of
    attempts that have ended for a while; a message names those of which it is gone.

    A terminal gets text and colours; other control sequences of the job are left out, unless --raw.
    """
    wanted = None if lines == "all" else _count(lines, "-n")
    named = one_job(Jobs(app.connection()), job)
    number = attempt or named.attempt
    if every and (follow or number):
        raise InvalidRequest("--all takes neither -f nor an attempt: it prints all that is kept")
    if follow:
        with detaching(app, [named.job_id]):
            follow_job(
                app, named.job_id, lines=wanted, node_rank=rank, only_attempt=number, raw=raw
            )
        return
    answer = Jobs(app.connection()).get(named.job_id)
    if not answer.attempts:
        raise IllegalTransition(
            f"job {named.job_id} has not started yet; it has no output",
            hint=f"dlq why {app.named(named.job_id)}",
        )
    if every:
        _print_all(app, answer, rank, wanted, raw=raw)
        return
    chosen = number or answer.attempts[-1].attempt
    print_tails(_outputs(app, answer, chosen, rank, raw=raw), wanted)


def _print_all(
    app: App, answer: job_service_pb2.GetJobResponse, rank: str, lines: int | None, *, raw: bool
) -> None:
    """The output of all attempts in their order. The last error, if that of none is kept."""
    gone: DlqError | None = None
    printed = False
    for each in sorted(answer.attempts, key=lambda it: it.attempt):
        click.echo(_headline(answer.job.job_id, each))
        sys.stdout.flush()
        try:
            print_tails(_outputs(app, answer, each.attempt, rank, raw=raw), lines)
            printed = True
        except (NotFound, Unavailable) as error:
            gone = error
            app.say(error.what)
    if gone is not None and not printed:
        raise gone


def _headline(job_id: str, attempt: job_pb2.Attempt) -> str:
    state = ATTEMPT_STATES.get(attempt.state) or "unknown"
    nodes = compress_hostlist([rank.node_id for rank in attempt.ranks])
    return f"==> job {job_id}, attempt {attempt.attempt}: {state} on {nodes} <=="


def follow_job(
    app: App,
    job_id: str,
    *,
    lines: int | None,
    node_rank: int | str = 0,
    only_attempt: int = 0,
    raw: bool = False,
    holds: HoldTeller | None = None,
) -> None:
    """Print a job's output as it comes, attempt after attempt, until the job (or attempt) ends."""
    holds = holds or HoldTeller(app)
    seen, attempt = 0, only_attempt
    while True:
        attempt = only_attempt or _next_attempt(app, job_id, holds, after=seen)
        if not attempt:
            return
        if seen:
            app.say(f"job {job_id} goes on as attempt {attempt}")
        answer = Jobs(app.connection()).get(job_id)
        follow_ranks(
            _outputs(app, answer, attempt, str(node_rank), raw=raw),
            None if seen else lines,
        )
        if only_attempt:
            return
        seen = attempt


def _next_attempt(app: App, job_id: str, holds: HoldTeller, *, after: int) -> int:
    """The last attempt beyond `after` once it has started; 0 when none will come by itself."""
    told = False

    def look(job: job_pb2.Job) -> None:
        nonlocal told
        holds.look(job)
        if not told and shown_state(job) in WAITING:
            told = True
            app.say(f"job {job_id} is {shown_state(job)}; its output follows when it runs")

    return next_attempt(
        app.connection(),
        job_id,
        after=after,
        look=look,
        on_lost=lambda error: app.say(f"{error.what}; still trying"),
    )


def _outputs(
    app: App, answer: job_service_pb2.GetJobResponse, attempt: int, rank: str, *, raw: bool
) -> Outputs:
    """The outputs of an attempt that `--rank` asks for."""
    filtered = app.look().tty and not raw
    known = next((each for each in answer.attempts if each.attempt == attempt), job_pb2.Attempt())
    ranks, task = [each.node_rank for each in known.ranks] or [0], ""
    if rank != ALL:
        stream = stream_of(rank, answer.spec, known)
        if known.attempt and stream.node_rank not in ranks:
            raise InvalidRequest(
                f"attempt {attempt} has no rank {stream.node_rank}", hint=f"its ranks: {ranks}"
            )
        ranks, task = [stream.node_rank], stream.task
    return Outputs(
        app.connection(),
        answer.job.job_id,
        attempt,
        ranks,
        say=app.say,
        filtered=filtered,
        task=task,
    )


def _count(text: str, flag: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise InvalidRequest(f"{flag}: {text[:64]!r} is neither a number nor `all`")
    return int(text)
