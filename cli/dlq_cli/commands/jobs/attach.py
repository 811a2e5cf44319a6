"""`dlq attach`: the output of a job from now on, until it ends or Ctrl-C."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextlib import nullcontext as _nothing

import click

from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.clusters.listed import job_argument
from dlq_cli.commands.look.logs import follow_job
from dlq_cli.commands.look.wait import RUNNING, exit_code, wait_for
from dlq_cli.commands.options import detaching, examples, pass_app
from dlq_cli.interactive.piped import PipedStdin
from dlq_cli.interactive.terminal import STDIN
from dlq_cli.jobs.held import HoldTeller
from dlq_cli.lists.select import one_job
from dlq_cli.words import shown_state
from dlq_client.jobs import Jobs
from dlq_common.errors import IllegalTransition, InvalidRequest
from dlq_common.job_fields.reading.words import PIPE


@click.command(epilog=examples("dlq attach 17", "dlq attach --rank 3 17"))
@click.option("--rank", type=click.IntRange(min=0), default=0, show_default=True, metavar="R")
@click.option("--raw", is_flag=True, help="Print all control sequences, also on a terminal.")
@click.option("--stdin", is_flag=True, help="Bring our stdin to it, where its stdin is open.")
@job_argument(several=False)
@pass_app
def attach(app: App, job: str, rank: int, raw: bool, stdin: bool) -> None:
    """Join the output of JOB (stdout and stderr as one) from now on; exits as the job does.

    Ctrl-C leaves, with exit code 130; the job goes on. Earlier output: `dlq logs JOB`. A shell
    beside it is `dlq exec -t JOB -- bash`.

    With --stdin our stdin, and its end, go to a job of `dlq submit --stdin`, or of a `dlq run` that
    is gone. All of its output comes. One client at a time writes. A job that has got a byte is tied
    to its client: it ends after [jobs] attend_silence without one.
    """
    named = one_job(Jobs(app.connection()), job)
    if named.attempt:
        raise InvalidRequest(
            f"attach follows a job from attempt to attempt; {named.job_id}.{named.attempt} is one",
            hint=f"dlq logs -f {named.job_id} --attempt {named.attempt}",
        )
    holds = HoldTeller(app)
    begun = not stdin and shown_state(Jobs(app.connection()).get(named.job_id).job) in RUNNING
    writer = _Writer(app, named.job_id)
    with writer.heard(), detaching(app, [named.job_id]), writer.brought() if stdin else _nothing():
        follow_job(
            app, named.job_id, lines=0 if begun else None, node_rank=rank, raw=raw, holds=holds
        )
        ended = wait_for(app, [named.job_id], holds=holds)
    if code := exit_code(ended.values()):
        raise exit_codes.Ended(code)


class _Writer:
    """Our stdin on its way to a job that somebody has submitted with an open one."""

    def __init__(self, app: App, job_id: str) -> None:
        self._app = app
        self._job_id = job_id
        self._refused = ""

    def brought(self) -> AbstractContextManager[object]:
        """Inside, it goes there. Raises where the job has no stdin to write to, or is another
        user's.
        """
        jobs = Jobs(self._app.connection())
        jobs.attend(self._job_id)  # of its user alone
        if jobs.get(self._job_id).spec.interactive.stdin != PIPE:
            raise InvalidRequest(
                f"the stdin of job {self._job_id} is empty",
                hint="`dlq submit --stdin` keeps it open; a shell beside it: dlq shell "
                f"{self._job_id}",
            )
        return PipedStdin(
            self._app.connection(), self._job_id, STDIN, self._app.say, refused=self._refuse
        )

    @contextmanager
    def heard(self) -> Iterator[None]:
        """A refusal ends what is inside."""
        try:
            yield
        except exit_codes.Ended:
            if self._refused:
                raise IllegalTransition(f"job {self._job_id}: {self._refused}") from None
            raise

    def _refuse(self, why: str) -> None:
        self._refused = why
        os.kill(os.getpid(), signal.SIGINT)  # the main thread reads the output
