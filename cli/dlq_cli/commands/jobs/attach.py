"""`dlq attach`: the output of a job from now on, until it ends or Ctrl-C."""

from __future__ import annotations

import click

from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.commands.look.logs import follow_job
from dlq_cli.commands.look.wait import RUNNING, exit_code, wait_for
from dlq_cli.commands.options import detaching, examples, pass_app
from dlq_cli.jobs.held import HoldTeller
from dlq_cli.lists.select import one_job
from dlq_cli.words import shown_state
from dlq_client.jobs import Jobs
from dlq_common.errors import InvalidRequest


@click.command(epilog=examples("dlq attach 17", "dlq attach --rank 3 17"))
@click.option("--rank", type=click.IntRange(min=0), default=0, show_default=True, metavar="R")
@click.option("--raw", is_flag=True, help="Print all control sequences, also on a terminal.")
@click.option("--stdin", is_flag=True, help="Refused: see `dlq exec -t` and `dlq run --pty`.")
@click.argument("job")
@pass_app
def attach(app: App, job: str, rank: int, raw: bool, stdin: bool) -> None:
    """Join the output of JOB (stdout and stderr as one) from now on; exits as the job does.

    Ctrl-C leaves, with exit code 130; the job goes on. Earlier output: `dlq logs JOB`. Nothing can
    be typed into a job here: its stdin is empty, or comes from its `dlq run`. A shell beside it is
    `dlq exec -t JOB -- bash`.
    """
    named = one_job(Jobs(app.connection()), job)
    if stdin:
        raise InvalidRequest(
            "the stdin of a job comes from the dlq run that has submitted it, or is empty",
            hint=f"a shell beside it: dlq exec -t {named.job_id} -- bash",
        )
    if named.attempt:
        raise InvalidRequest(
            f"attach follows a job from attempt to attempt; {named.job_id}.{named.attempt} is one",
            hint=f"dlq logs -f {named.job_id} --attempt {named.attempt}",
        )
    holds = HoldTeller(app)
    runs = shown_state(Jobs(app.connection()).get(named.job_id).job) in RUNNING
    with detaching(app, [named.job_id]):
        follow_job(
            app, named.job_id, lines=0 if runs else None, node_rank=rank, raw=raw, holds=holds
        )
        ended = wait_for(app, [named.job_id], holds=holds)
    if code := exit_code(ended.values()):
        raise exit_codes.Ended(code)
