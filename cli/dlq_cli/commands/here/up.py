"""`dlq up` and `dlq down`: a cluster on this machine, for its user, without root."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.exit_codes import FAILURE, Ended
from dlq_cli.up.place import Box, host_word, read_box
from dlq_common.errors import ConfigError


@click.command(
    epilog=examples(
        "dlq up",
        "dlq up --devices fake:2",
        "dlq up --cores 4",
        "dlq up --at-login",
        "dlq up --invite",
        "dlq up --join 192.168.1.5:7321 --token - < token.txt",
        "dlq up --status",
    )
)
@click.option("--devices", metavar="WORD", help="nvml, none, or virtual GPUs: fake:2, "
              "fake:8xH100-80GB.  [default: nvml]")  # fmt: skip
@click.option("--cores", type=click.IntRange(min=0), metavar="N",
              help="Cores for jobs without GPUs.  [default: 0 beside GPUs]")  # fmt: skip
@click.option("--status", "look", is_flag=True, help="Say how the box is, and start nothing.")
@click.option("--invite", is_flag=True, help="Let another machine join: prints its command.")
@click.option("--join", "join_address", metavar="HOST:PORT", help="Join the box at this address.")
@click.option(
    "--token",
    metavar="TOKEN",
    help="With --join; - reads it from stdin, else it is asked for. A typed one is shown by ps.",
)
@click.option("--name", metavar="NODE", help="Name of this machine as a node.")
@click.option("--address", metavar="HOST", help="Where others reach this machine, with --invite.")
@click.option("--port", type=click.IntRange(1, 65_534), help="The master's; joins have the next.")
@click.option("--dir", "directory", type=click.Path(path_type=Path), metavar="DIR",
              help="Files of the daemons.  [default: ~/.local/state/dlq/up]")  # fmt: skip
@click.option("--page", is_flag=True, help="Print a link that opens the web page.")
@click.option("--at-login/--not-at-login", default=None,
              help="Start at login by a unit of your systemd, or no more.")  # fmt: skip
@json_option
@pass_app
def up(
    app: App,
    devices: str | None,
    cores: int | None,
    look: bool,
    invite: bool,
    join_address: str | None,
    token: str | None,
    name: str | None,
    address: str | None,
    port: int | None,
    directory: Path | None,
    page: bool,
    at_login: bool | None,
    as_json: bool,
) -> None:
    """Run a cluster on this machine: a master, an agent on its GPUs, and the web page.

    It needs no root and asks nothing. Afterwards `dlq submit` works without options. A second call
    says that it is up, and mends what is not. `dlq down` ends it.

    Jobs run with your own rights. A cluster for several people is installed by deploy/install.sh.
    """
    from dlq_cli.up import asking, steps

    box = read_box(app.home)
    if look:
        _show(box, as_json=as_json)
        return
    joins = join_address is not None
    if box is None:
        wished = steps.devices_of(devices)
        box = steps.new_box(app, wished, directory, port, name or host_word(), joined=joins)
    else:
        box = steps.changed(app, box, devices, port, directory)
    if cores is not None:
        box = steps.with_cores(box, cores)
    if join_address is not None:
        secret = "" if box.has_node else _token(token)
        steps.join(app, box, join_address, secret, at_login=at_login)
    elif box.joined:
        steps.start_joined(app, box, at_login=at_login)
    else:
        steps.start(app, box, at_login=at_login)
    if invite:
        command, box = steps.invite(app, box, address)
        click.echo(command)
        app.say("run it on the other machine within an hour; it is good for one machine")
        app.say(
            f"every machine has checkpoints in its own {box.checkpoints}, unless that is shared"
        )
    if page:
        click.echo(asking.new_page_link(box))
    if not (invite or page):
        _show(box, as_json=as_json)


@click.command(epilog=examples("dlq down", "dlq down --force", "dlq down --leave-jobs"))
@click.option(
    "-y",
    "--yes",
    "--force",
    "force",
    is_flag=True,
    help="Cancel the jobs that run here, without asking. They may save for 30 seconds at most, and "
    "are killed then.",
)
@click.option(
    "--leave-jobs",
    is_flag=True,
    help="End the daemons only: jobs go on for an hour at most, and `dlq up` takes them over.",
)
@pass_app
def down(app: App, force: bool, leave_jobs: bool) -> None:
    """End the cluster that `dlq up` runs. Its files stay, and `dlq up` goes on with them.

    Jobs that wait keep their places. Jobs that run are cancelled, after a question. They may save
    for as long as their own grace says, and are killed then. Ctrl-C stops the waiting: the jobs end
    all the same, and the cluster stays up.
    """
    from dlq_cli.up import asking, making, units

    box = read_box(app.home)
    if box is None:
        raise ConfigError(f"{app.home} has no box", hint="`dlq up` makes one")
    if not leave_jobs:
        jobs = asking.running_jobs(app, box)
        if impact := asking.impact_of(box, jobs):
            app.confirm(impact, yes=force, declined="everything goes on")
        if jobs:
            asking.end_jobs(app, box, jobs, force=force)
    installed = units.is_installed(box, os.environ)
    if installed:
        units.stop(box)
    making.stop_keeper(box)
    click.echo("down")
    if installed:
        app.say("it starts again at your next login; `dlq up --not-at-login` changes that")


def _token(token: str | None) -> str:
    """The token of the command line, else of the terminal or of stdin."""
    if token is None and sys.stdin.isatty():
        return str(click.prompt("Token of `dlq up --invite`", hide_input=True, err=True)).strip()
    return sys.stdin.readline().strip() if token in (None, "", "-") else token


def _show(box: Box | None, *, as_json: bool) -> None:
    from dlq_cli.facts.common import tell
    from dlq_cli.up.looking import box_facts, box_text

    if box is None:
        tell({"box": None}, lambda: "no box: `dlq up` makes one", as_json=as_json)
        raise Ended(FAILURE)
    facts = box_facts(box)
    tell({"box": facts}, lambda: box_text(facts), as_json=as_json)
    if facts["state"] != "up":
        raise Ended(FAILURE)
