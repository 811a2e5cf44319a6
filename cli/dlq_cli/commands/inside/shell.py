"""`dlq shell`: the user's shell inside a job that runs, with or without a command."""

from __future__ import annotations

import sys

import click

from dlq_cli.app import App
from dlq_cli.commands.inside.exec import running_job, stay_with
from dlq_cli.commands.options import examples, pass_app
from dlq_cli.interactive.terminal import needed_size, size
from dlq_cli.lists.select import one_job
from dlq_client.jobs import Jobs

# The account's shell, where the job names no other. The words of a command are joined, and are the
# shell's to take apart, as with ssh.
_SHELL = """\
: "${SHELL:=$(getent passwd "$(id -u)" 2>/dev/null | cut -d: -f7)}"
[ -x "$SHELL" ] || SHELL=/bin/sh
export SHELL
[ $# -gt 0 ] || exec "$SHELL"
exec "$SHELL" -c "$*"
"""


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog=examples(
        "dlq shell 17",
        "dlq shell --rank 3 17",
        "dlq shell 17 'cd results && ls'",
        "rsync -a -e 'dlq shell' data/ 17:data/",
    ),
)
@click.option("--rank", type=click.IntRange(min=0), default=0, show_default=True, metavar="R")
@click.option("-t", "--tty", "terminal", is_flag=True, help="Give a command a terminal too.")
@click.argument("job")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[CMD]...")
@pass_app
def shell(app: App, job: str, command: tuple[str, ...], rank: int, terminal: bool) -> None:
    """Open a shell inside JOB, beside its own processes: its user, limits, environment and GPUs.

    At a terminal the shell has one, of the size of ours. With CMD, or with a pipe at stdin, it has
    none. The words of CMD are joined by spaces and are a command of that shell, as with ssh. So
    `rsync -e 'dlq shell'` works, and needs rsync where the job runs.

    When the master restarts, or the line is cut for less than 35 seconds, the shell goes on and no
    key is lost. It ends with the job, and with this command.
    """
    if terminal:
        wanted: tuple[int, int] | None = needed_size("-t")
    else:
        at_terminal = not command and sys.stdin.isatty() and sys.stdout.isatty()
        wanted = size() if at_terminal else None
    job_id = running_job(app, one_job(Jobs(app.connection()), job))
    open_shell(app, job_id, command, rank=rank, size=wanted)


def open_shell(
    app: App,
    job_id: str,
    command: tuple[str, ...],
    *,
    rank: int,
    size: tuple[int, int] | None,
) -> None:
    """Stay with a shell inside, and end as it does."""
    words = ["/bin/sh", "-c", _SHELL, "dlq-shell", *command]
    # Without a terminal it may carry files, as rsync does.
    stay_with(app, job_id, words, rank=rank, size=size, bulky=size is None)
