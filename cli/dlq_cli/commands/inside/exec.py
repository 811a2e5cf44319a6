"""`dlq exec`: a command inside a job that runs, at a terminal or in a pipe."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from dlq.v1 import exec_pb2
from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.commands.options import examples, pass_app
from dlq_cli.interactive.command import Heard, attended
from dlq_cli.interactive.terminal import needed_size
from dlq_cli.lists.select import Named, one_job
from dlq_client.inside.command import CommandInside
from dlq_client.jobs import Jobs
from dlq_common.errors import IllegalTransition, InvalidRequest


@click.command(
    "exec",
    epilog=examples(
        "dlq exec 17 -- nvidia-smi",
        "dlq exec -t 17 -- bash",
        "dlq exec --rank 3 17 -- py-spy dump --pid 1",
        "dlq exec 17 -- tar cf - results | tar xf -",
    ),
)
@click.option("--rank", type=click.IntRange(min=0), default=0, show_default=True, metavar="R")
@click.option("-t", "--tty", "terminal", is_flag=True, help="Give it a terminal, for a shell.")
@click.option("-n", "--no-stdin", is_flag=True, help="Nothing is read from stdin.")
@click.argument("job")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
@pass_app
def exec_(
    app: App, job: str, command: tuple[str, ...], rank: int, terminal: bool, no_stdin: bool
) -> None:
    """Run CMD inside JOB, beside its own processes: its user, limits, directory, environment, GPUs.

    It counts against the job's limits, and ends with the job. When this command ends for any reason
    (Ctrl-C, a kill), CMD and its children are killed; the job goes on.

    Exits as CMD does, with 128+n for signal n, 127 when it is not found, 126 when it cannot be run.
    A cut line is taken up again within 35 seconds, and no byte is lost. After that, or when the
    agent restarts, this ends with exit code 69; the terminal is then as it was before.
    """
    if terminal and no_stdin:
        raise InvalidRequest("-t needs a terminal, and here is none", hint="leave -t out")
    size = needed_size("-t") if terminal else None
    job_id = running_job(app, one_job(Jobs(app.connection()), job))
    stay_with(app, job_id, command, rank=rank, size=size, stdin=not no_stdin)


def stay_with(
    app: App,
    job_id: str,
    command: Sequence[str],
    *,
    rank: int = 0,
    size: tuple[int, int] | None = None,
    stdin: bool = True,
    bulky: bool = False,
    heard: Heard | None = None,
) -> None:
    """Run a command inside, with our stdin and stdout, and end as it does. `size` (columns, rows):
    our terminal is its terminal. `bulky`: its bytes go through the relay where there is one.
    `heard` gets its stdout too.
    """
    inside = CommandInside(
        app.connection(),
        job_id,
        command,
        node_rank=rank,
        terminal=size,
        terminal_type=os.environ.get("TERM", "") if size else "",
        kept=True,
        comes_back=True,
        tell=app.say,
        bulky=bulky,
    )
    ended = attended(inside, stdin=stdin, raw=size is not None, heard=heard)
    if code := _exit_code(app, ended):
        raise exit_codes.Ended(code)


def running_job(app: App, named: Named) -> str:
    """The job's id; an attempt that was named must be the one that runs."""
    if named.attempt:
        present = Jobs(app.connection()).get(named.job_id).job.attempt_count
        if named.attempt != present:
            raise IllegalTransition(
                f"attempt {named.job_id}.{named.attempt} is over; the last one is {present}"
            )
    return named.job_id


def _exit_code(app: App, ended: exec_pb2.ExecEnded) -> int:
    if ended.error:
        app.say(f"the command could not be run: {ended.error}")
        return ended.exit_code if ended.HasField("exit_code") else exit_codes.FAILURE
    if ended.rank_ended:
        app.say("the job's rank has ended, and the command with it")
    return exit_codes.SIGNALLED + ended.signal if ended.signal else ended.exit_code
