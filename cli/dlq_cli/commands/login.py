"""`dlq login`: get a certificate from the broker on the master's host."""

from __future__ import annotations

import getpass
import os
import re
from pathlib import Path

import click

from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.quiet import quiet_grpc
from dlq_client.identity import Identity, save_identity
from dlq_common.errors import ConfigError
from dlq_common.instants import format_instant


@click.command(epilog=examples("dlq login", "dlq login --socket /srv/dlq/login.sock"))
@click.option(
    "--socket",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="The broker's socket.  [default: $DLQ_LOGIN_SOCKET or /run/dlq/login.sock]",
)
@json_option
@pass_app
def login(app: App, socket: Path | None, as_json: bool) -> None:
    """Get a certificate for the user you are on this host.

    There is no password: the broker asks the kernel who is calling. Other commands log in by
    themselves where the socket is, and renew the certificate in time.
    """
    identity = log_in(app, login_socket(socket))
    until = format_instant(identity.expires_s)
    if as_json:
        from dlq_cli.facts.common import document

        click.echo(
            document(
                {
                    "cluster_name": identity.cluster,
                    "user": identity.user,
                    "role": identity.role,
                    "address": identity.address,
                    "expire_time": until,
                }
            )
        )
    else:
        click.echo(f"Logged in to {identity.cluster} as {identity.user} ({identity.role})")
        app.say(f"the certificate in {app.home} is good until {until}")


def login_socket(named: Path | None) -> Path:
    """The broker's socket: as named, by $DLQ_LOGIN_SOCKET, or where the service puts it."""
    with quiet_grpc():
        from dlq_client.login import DEFAULT_SOCKET, SOCKET_VARIABLE

    return named or Path(os.environ.get(SOCKET_VARIABLE) or DEFAULT_SOCKET)


def log_in(app: App, socket: Path) -> Identity:
    """Ask the broker and keep its answer."""
    from dlq_client.login import login as ask_broker

    identity = ask_broker(socket, _wished_name())
    try:
        save_identity(app.home, identity)
    except OSError as error:
        raise ConfigError(
            f"{error.filename}: {error.strerror}", hint="dlq --home DIR names another directory"
        ) from None
    return identity


def _wished_name() -> str:
    """A name for the request; the broker decides by the kernel's word, not by this."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):
        name = ""
    return re.sub(r"[^a-z0-9_.-]", "_", name.lower())[:32] or "user"
