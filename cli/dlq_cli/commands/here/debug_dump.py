"""`dlq debug-dump`: versions, settings, answers and logs in one archive, without secrets."""

from __future__ import annotations

import time
from pathlib import Path

import click

from dlq_cli.app import App
from dlq_cli.commands.options import examples, pass_app
from dlq_common.errors import ConfigError


@click.command(
    epilog=examples(
        "dlq debug-dump", "dlq debug-dump --job 17", "dlq debug-dump -o /tmp/dlq.tar.gz"
    )
)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="The archive.  [default: dlq-debug-TIME.tar.gz here]")  # fmt: skip
@click.option("--job", metavar="JOB", help="Also everything about this job, and its events.")
@click.option("--with-commands", is_flag=True, help="Commands, comments and labels of jobs too.")
@pass_app
def debug_dump(app: App, output: Path | None, job: str | None, with_commands: bool) -> None:
    """Write an archive for a report of a fault, and say what is in it and what was left out.

    It holds versions, settings, the state as the master tells it, and ends of logs of this host.
    Keys, tokens, values of environments and the commands of users are left out. It works while the
    master is down. Only you can read the file, which has at most 20 MiB before compression.
    """
    from dlq_cli.dump.taking import parts_of, write_dump

    path = output or Path(f"dlq-debug-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.tar.gz")
    parts = list(parts_of(app.home.absolute(), job, with_commands=with_commands))
    try:
        listed = write_dump(path, parts, with_commands=with_commands)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", hint="-o names another file") from None
    click.echo(listed, nl=False)
    for part in parts:
        if part.name == "job/show.json" and part.refusal:
            app.say(f"nothing about job {job} is in it: {part.refusal}")
    click.echo(f"written: {path}")
