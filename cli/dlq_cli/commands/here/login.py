"""`dlq login`: get a certificate from the broker on the master's host, or through the web page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.sign_in import enter_as_guest, log_in, log_in_at_page, start_ahead
from dlq_client.line.identity import default_home
from dlq_common.errors import InvalidRequest
from dlq_common.text.instants import format_instant

if TYPE_CHECKING:
    from dlq_client.line.identity import Identity


@click.command(
    epilog=examples(
        "dlq login",
        "dlq login --socket /srv/dlq/login.sock",
        "dlq login --oidc --web https://dlq.example.org",
        "dlq --home ~/.config/dlq-roof login --grant roof",
    )
)
@click.option(
    "--socket",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="The broker's socket.  [default: $DLQ_LOGIN_SOCKET, else as `dlq config` shows]",
)
@click.option(
    "--oidc",
    is_flag=True,
    help="Sign in on the cluster's web page instead: for a host without the broker.",
)
@click.option(
    "--web",
    metavar="URL",
    help="The web page, with --oidc.  [default: $DLQ_WEB_ADDRESS, else as `dlq config` shows]",
)
@click.option(
    "--grant",
    metavar="NAME",
    help="As a guest of another organisation, by this grant; --home is the place for it.",
)
@click.option(
    "--from",
    "own_home",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The identity at your own cluster, with --grant.  [default: ~/.config/dlq]",
)
@json_option
@pass_app
def login(
    app: App,
    socket: Path | None,
    oidc: bool,
    web: str | None,
    grant: str | None,
    own_home: Path | None,
    as_json: bool,
) -> None:
    """Get a certificate for the user you are on this host.

    There is no password: the broker asks the kernel for the caller's account. Other commands log in
    by themselves where the socket is, and renew the certificate in time.

    With --oidc the command shows a page and a code. You type the code there, sign in with your
    organisation, and confirm. Such a certificate has a shorter life, and is not renewed.

    With --grant your own cluster introduces you to another one, which has lent it GPUs. Such a
    certificate is good for hours, and later commands get another one by themselves.
    """
    if grant:
        if oidc or socket is not None or web is not None:
            raise InvalidRequest("--grant is a way of its own")
        identity = _as_guest(app, grant, own_home)
    elif own_home is not None:
        raise InvalidRequest("--from is for --grant")
    else:
        identity = _at_page(app, socket, web) if oidc else _at_broker(app, socket, web)
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


def _as_guest(app: App, grant: str, own_home: Path | None) -> Identity:
    own = (own_home or default_home({})).expanduser().absolute()
    if own == app.home.absolute():
        raise InvalidRequest(
            "the identity of a guest needs a directory of its own",
            hint=f"dlq --home ~/.config/dlq-{grant} login --grant {grant}",
        )
    return enter_as_guest(app.home, app.own(own).connection(), grant, own)


def _at_broker(app: App, socket: Path | None, web: str | None) -> Identity:
    if web is not None:
        raise InvalidRequest("--web is for --oidc")
    return log_in(app.home, socket or Path(app.settings.get("login_socket").value))


def _at_page(app: App, socket: Path | None, web: str | None) -> Identity:
    if socket is not None:
        raise InvalidRequest("--socket and --oidc are two ways: choose one")
    page = web or app.settings.get("web_address").value
    if not page:
        raise InvalidRequest(
            "no web page is known",
            hint="--web URL names it, or `dlq config set web_address URL` for good",
        )
    return log_in_at_page(app.home, page, app.say, app.clock)
