"""`dlq web`: a web page and an HTTP API on this host's loopback, with your rights."""

from __future__ import annotations

import asyncio
import sys

import click

from dlq_cli.app import App
from dlq_cli.commands.options import examples, pass_app
from dlq_common.daemon.logs import configure_logging
from dlq_common.errors import ConfigError
from dlq_common.ids import RandomIds

MISSING = "the web page needs more packages"


@click.command(epilog=examples("dlq web", "dlq web --port 8080"))
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Listen here.  [7330, or a free one where that is taken]",
)
@pass_app
def web(app: App, port: int | None) -> None:
    """A web page with your jobs, the queue and the nodes, and an HTTP API, until Ctrl-C.

    It listens on this host only and prints a link that opens one session in one browser. Programs
    find its address and a token in web.json of your identity's directory. It has your rights
    towards the master, and no more.
    """
    try:
        configure_logging(app.clock, level="warning", stream=sys.stderr)
        from dlq_web.serving import serve
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{MISSING}: {error.name} is not installed", hint="pip install 'dlq[web]'"
        ) from None
    identity = app.connection().identity
    app.close()
    asyncio.run(serve(identity, app.home, port, app.clock, RandomIds(app.clock), app.say))
