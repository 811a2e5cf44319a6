"""`dlq ssh-config`: a stanza by which ssh, scp, rsync and editors reach jobs."""

from __future__ import annotations

import click

from dlq_cli.app import App
from dlq_cli.commands.inside.exec import running_job
from dlq_cli.commands.options import examples, pass_app
from dlq_cli.interactive.sshd import HOST_PREFIX, asked_inside, options, proxy_words
from dlq_cli.lists.select import one_job
from dlq_client.jobs import Jobs


@click.command(
    "ssh-config",
    epilog=examples(
        "dlq ssh-config >> ~/.ssh/config",
        "dlq ssh-config 17 > job.conf && scp -F job.conf dlq-17:log.txt .",
        "code --remote ssh-remote+dlq-17 /home/ada/project",
    ),
)
@click.option("--rank", type=click.IntRange(min=0), default=0, show_default=True, metavar="R")
@click.option("--user", metavar="NAME", help="Your account on the nodes.  [default: your name]")
@click.argument("job", required=False)
@pass_app
def ssh_config(app: App, job: str | None, rank: int, user: str | None) -> None:
    """Print a stanza of ssh's configuration: `dlq-17` is job 17 then, and `dlq-desk` a job's name.

    It serves all jobs: ssh, scp, sftp, rsync, VS Code and PyCharm take it. With JOB it is for this
    one, which must run, and has its account. Each connection is a `dlq ssh --stdio` inside the job.
    """
    if job is None:
        host, target = f"{HOST_PREFIX}*", "'%n'"  # an old ssh lets any letters pass
        account = user or app.connection().identity.user
    else:
        job_id = running_job(app, one_job(Jobs(app.connection()), job))
        host, target = HOST_PREFIX + job_id, job_id
        account = user or asked_inside(app, job_id, rank).account
    click.echo(f"Host {host}")
    for name, value in options(app, proxy_words(app, target, rank), account).items():
        click.echo(f"  {name} {value}")
