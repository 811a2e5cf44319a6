"""`dlq-web`: the web page and the HTTP API for all users of a cluster, as a service of its own.

This module has the command and its words. `running` is loaded once the configuration is right: it
needs the packages of the extra `web`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import NoReturn

import click

from dlq_common.clock import SteadyClock
from dlq_common.daemon.config import dump_config
from dlq_common.daemon.logs import configure_logging
from dlq_common.errors import ConfigError, DlqError
from dlq_web.config import read_config
from dlq_web.door.wall import WallToken

DEFAULT_CONFIG = Path("/etc/dlq/web.toml")
CONFIG = click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    default=DEFAULT_CONFIG,
    show_default=True,
    help="The configuration, TOML.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dlq", prog_name="dlq-web", message="%(prog)s %(version)s")
def main() -> None:
    """The web page and the HTTP API of a dlq cluster, for all its users."""


@main.command()
@CONFIG
@click.option("--check-config", is_flag=True, help="Print the effective configuration and leave.")
def serve(path: Path, check_config: bool) -> None:
    """Serve until SIGTERM."""
    clock = SteadyClock()
    try:
        config = read_config(path)
        if check_config:
            click.echo(dump_config(config), nl=False)
            return
        configure_logging(clock, level=config.log.level)
        from dlq_web.running import run

        asyncio.run(run(config, clock))
    except ModuleNotFoundError as missing:
        what = f"the web server needs more packages: {missing.name} is not installed"
        _fail(ConfigError(what, hint="pip install 'dlq[web]'"))
    except DlqError as error:
        _fail(error)


@main.command()
@CONFIG
@click.option("--close", is_flag=True, help="Make the address worthless.")
def wall(path: Path, close: bool) -> None:
    """Print the address of the map for a screen on the wall. Run it in the service's account."""
    try:
        config = read_config(path)
        token = WallToken(config.service.state_dir)
        if close:
            token.revoke()
        elif not config.wall.user:
            raise ConfigError(f"{path} names no user of a wall", hint='[wall] user = "NAME"')
        else:
            click.echo(f"{config.page.origin}/wall#{token.made()}")
    except DlqError as error:
        _fail(error)


def _fail(error: DlqError) -> NoReturn:
    """Say what is wrong in one line, and leave."""
    text = f"dlq-web: {error.what}" + (f" ({error.hint})" if error.hint else "")
    print(text, file=sys.stderr)  # noqa: T201 - before there is a log
    raise SystemExit(1)


if __name__ == "__main__":
    main()
