"""`dlq web`: a web page and an HTTP API on this host's loopback, with your rights."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from urllib.parse import urlencode

import click

from dlq_cli.app import App
from dlq_cli.commands.options import examples, pass_app
from dlq_client.line.identity import Identity
from dlq_client.login import make_sign_in_link
from dlq_common.daemon.logs import configure_logging
from dlq_common.errors import ConfigError, Unavailable
from dlq_common.ids import RandomIds

AGAIN_S = 2.0  # until a login broker that is away is asked again
MISSING = "the web page needs more packages"


@click.command(
    epilog=examples("dlq web", "dlq web --port 8080", "dlq web --link", "dlq web --wall")
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Listen here.  [7330, or a free one where that is taken]",
)
@click.option(
    "--link",
    is_flag=True,
    help="Print a link that signs a browser in at the web server of the cluster.",
)
@click.option(
    "--wall/--no-wall",
    default=None,
    help="Print the address of a map without names for a screen on the wall; or close it for good.",
)
@pass_app
def web(app: App, port: int | None, link: bool, wall: bool | None) -> None:
    """A web page with your jobs, the queue and the nodes, and an HTTP API, until Ctrl-C.

    It listens on this host only and prints a link that opens one session in one browser. Programs
    find its address and a token in web.json of your identity's directory. It has your rights
    towards the master, and no more.

    Where the cluster has a web server for all, --link prints a link to it, and starts nothing. The
    link is good once, within five minutes, and signs a browser in as you.
    """
    if link:
        click.echo(sign_in_link(app))
        return
    try:
        configure_logging(app.clock, level="warning", stream=sys.stderr)
        from dlq_web.serving import serve
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{MISSING}: {error.name} is not installed", hint="pip install 'dlq[web]'"
        ) from None
    identity = identity_of(app)
    app.close()
    ids = RandomIds(app.clock)
    asyncio.run(serve(identity, app.home, port, app.clock, ids, app.say, wall=wall))


def identity_of(app: App, pause: Callable[[float], object] | None = None) -> Identity:
    """The caller's identity. Without one the login broker makes it, and that is the master's: while
    it is away this waits, and says so once. Raises a DlqError when the broker refuses.
    """
    pause = pause or threading.Event().wait
    told = False
    while True:
        try:
            return app.connection().identity
        except Unavailable as error:
            if not told:
                app.say(f"{error.what}; the page comes when the master answers")
            told = True
            pause(AGAIN_S)


def sign_in_link(app: App) -> str:
    """The address that signs one browser in as the caller. ConfigError without a web server."""
    made = make_sign_in_link(app.connection())
    if not made.web_address:
        raise ConfigError(
            "the master knows no web server for all",
            hint="an operator names it: [identity] web_address in master.toml; "
            "`dlq web` serves you alone",
        )
    told = urlencode({"user": app.connection().identity.user, "link": made.secret})
    return f"{made.web_address.rstrip('/')}/enter?{told}"
