"""`dlq ssh`: OpenSSH into a job that runs. Nothing listens on its node."""

from __future__ import annotations

import os
import shutil
import sys

import click

from dlq_cli.app import App
from dlq_cli.commands.inside.exec import running_job, stay_with
from dlq_cli.commands.inside.shell import open_shell
from dlq_cli.commands.options import examples, pass_app
from dlq_cli.interactive.sshd import (
    HOST_PREFIX,
    SshInside,
    asked_inside,
    key_of,
    options,
    proxy_words,
    serving_words,
)
from dlq_cli.interactive.terminal import size
from dlq_cli.lists.select import one_job
from dlq_client.jobs import Jobs


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog=examples(
        "dlq ssh 17",
        "dlq ssh 17 nvidia-smi",
        "dlq ssh --rank 3 17",
        "dlq ssh-config >> ~/.ssh/config",
    ),
)
@click.option("--rank", type=click.IntRange(min=0), default=0, show_default=True, metavar="R")
@click.option("--stdio", is_flag=True, help="For ProxyCommand: SSH on stdin and stdout.")
@click.argument("job")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[CMD]...")
@pass_app
def ssh(app: App, job: str, command: tuple[str, ...], rank: int, stdio: bool) -> None:
    """Run ssh into JOB, with its user, limits, variables and GPUs; exits as ssh does.

    It needs sshd and ssh-keygen where the job runs, in its image if it has one, and ssh here. Where
    one is missing, or the job runs as root, this is `dlq shell`. No daemon and no port is needed:
    sshd is a command inside the job, with keys of its own, and ends with this line.
    """
    named = one_job(Jobs(app.connection()), job.removeprefix(HOST_PREFIX) if stdio else job)
    job_id = running_job(app, named)
    if stdio:
        public_key = key_of(app).with_suffix(".pub").read_text().strip()
        stay_with(app, job_id, serving_words(public_key), rank=rank, bulky=True)
        return
    program = shutil.which("ssh")
    inside = asked_inside(app, job_id, rank)
    at_terminal = not command and sys.stdin.isatty() and sys.stdout.isatty()
    if program is None or not inside.runs or (at_terminal and not inside.has_terminals):
        app.say(f"OpenSSH {_why_not(program, inside)}; this is dlq shell")
        open_shell(app, job_id, command, rank=rank, size=size() if at_terminal else None)
        return
    settings = options(app, proxy_words(app, job_id, rank), inside.account)
    words = [word for item in settings.items() for word in ("-o", "=".join(item))]
    app.close()
    os.execv(program, ["ssh", *words, HOST_PREFIX + job_id, *command])


def _why_not(program: str | None, inside: SshInside) -> str:
    if program is None:
        return "is not installed on this host"
    return "has no terminal where the job runs" if inside.runs else "cannot run where the job does"
