"""`dlq login`: get a certificate from the broker on the master's host."""

from __future__ import annotations

from pathlib import Path

import click

from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.sign_in import log_in, start_ahead
from dlq_common.text.instants import format_instant


@click.command(epilog=examples("dlq login", "dlq login --socket /srv/dlq/login.sock"))
@click.option(
    "--socket",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="The broker's socket.  [default: $DLQ_LOGIN_SOCKET, else as `dlq config` shows]",
)
@json_option
@pass_app
def login(app: App, socket: Path | None, as_json: bool) -> None:
    """Get a certificate for the user you are on this host.

    There is no password: the broker asks the kernel for the caller's account. Other commands log in
    by themselves where the socket is, and renew the certificate in time.
    """
    identity = log_in(app.home, socket or Path(app.settings.get("login_socket").value))
    start_ahead()
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
