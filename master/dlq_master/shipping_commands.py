"""The commands of a shipped master: `recover`, `receive` and `shipping`."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import NoReturn

import click

from dlq_common.clock import SteadyClock
from dlq_common.daemon.config import load_config
from dlq_common.errors import DlqError
from dlq_common.identity.private_files import read_private
from dlq_common.text.instants import format_instant
from dlq_common.text.units import approximate_span

CONFIG = click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    default=Path("/etc/dlq/master.toml"),
    show_default=True,
    help="master.toml",
)


@click.command("recover")
@CONFIG
@click.option(
    "--from",
    "place",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=True,
    help="directory that the old master shipped to",
)
@click.option("--replace", is_flag=True, help="set the existing database aside")
@click.option(
    "--passphrase-file",
    type=click.Path(path_type=Path, exists=True),
    default=None,
    help="passphrase of the CA's key, if it was shipped encrypted",
)
@click.option(
    "--ca-key",
    type=click.Path(path_type=Path, exists=True),
    default=None,
    help="the CA's key, if it is kept apart",
)
@click.option("--although-alive", default="", help="HOST whose master is replaced while it ships")
@click.option("--again", default="", help="HOST that has recovered this place before")
def recover_shipped(
    place: Path,
    config_path: Path,
    replace: bool,
    passphrase_file: Path | None,
    ca_key: Path | None,
    although_alive: str,
    again: str,
) -> None:
    """Make the master of this host from what another one has shipped to a directory.

    The old master must be dead. The command watches the directory for some seconds, and refuses
    while the old master still ships. It prints what was lost. Agents obey the recovered master and
    refuse the old one; running jobs go on.

    \b
    Example:
      dlq-master recover --from /srv/dlq-shipped --passphrase-file /root/dlq.passphrase
    """
    from dlq_master.control.config import MasterConfig
    from dlq_master.founding import caller_name
    from dlq_master.recovering import Recovery, folder_with_config, recover
    from dlq_master.restoring import Restore, check_config

    try:
        check_config(config_path, folder_with_config(place))
        config = load_config(MasterConfig, config_path)
        restore = Restore(
            copy=place,
            state_dir=config.cluster.state_dir,
            cluster=config.cluster.name,
            replace=replace,
            passphrase=read_private(passphrase_file).strip() if passphrase_file else None,
            ca_key=ca_key,
            by=caller_name(),
        )
        wanted = Recovery(place=place, restore=restore, although_alive=although_alive, again=again)
        said = recover(wanted, SteadyClock().now_s(), threading.Event().wait)
    except (DlqError, OSError) as error:
        _fail(error)
    for line in said:
        click.echo(line)
    click.echo("start the master; retire the old host before it comes back")


@click.command("receive")
@click.argument("directory", type=click.Path(path_type=Path, exists=True, file_okay=False))
def receive_shipped(directory: Path) -> None:
    """Take what a master ships through [shipping] command, and write it into DIRECTORY.

    It speaks on its standard input and output, so that ssh can carry it.

    \b
    Example:
      command = ["ssh", "dlq@vault", "dlq-master", "receive", "/srv/dlq-shipped"]
    """
    from dlq_master.shipping.line import receive

    receive(directory, sys.stdin.buffer, sys.stdout.buffer)


@click.command("shipping")
@CONFIG
def show_shipping(config_path: Path) -> None:
    """Say how far the shipping of this host's master is; exits with 1 when it fails.

    \b
    Example:
      dlq-master shipping
    """
    from dlq_master.control.config import MasterConfig
    from dlq_master.shipping.status import read_status

    try:
        config = load_config(MasterConfig, config_path)
    except DlqError as error:
        _fail(error)
    status = read_status(config.cluster.state_dir)
    if status is None:
        click.echo("this master ships nothing")
        return
    behind_s = max(0.0, SteadyClock().now_s() - status.complete_s)
    if status.complete_s:
        click.echo(f"shipped: all changes until {format_instant(status.complete_s)}")
        click.echo(f"behind:  {approximate_span(behind_s)}, {status.behind_bytes} bytes")
    else:
        click.echo("shipped: nothing by this master yet")
    click.echo(f"epoch:   {status.epoch}, file {status.sequence}")
    if status.failure:
        click.echo(f"failure: {status.failure}")
        sys.exit(1)


def _fail(error: BaseException) -> NoReturn:
    what = error.what if isinstance(error, DlqError) else str(error)
    words = "\n".join(filter(None, (f"dlq-master: {what}", getattr(error, "hint", ""))))
    click.echo(words, err=True)
    sys.exit(1)
