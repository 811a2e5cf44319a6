"""`dlq config`: the settings that hold here, where each came from, and changing them."""

from __future__ import annotations

import click

from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.facts.common import document
from dlq_cli.render import Cell, table
from dlq_cli.settings import FILE, KEYS, change_file, plain
from dlq_common.instants import format_instant

_LINES = "\n".join(f"  {key.name:<13} {key.help}" for key in KEYS.values())


@click.group(
    invoke_without_command=True,
    epilog=examples("dlq config", "dlq config --json", "dlq config set color never"),
)
@json_option
@click.pass_context
def config(ctx: click.Context, as_json: bool) -> None:
    """Show what holds for `dlq` here: identity and settings, and where each value came from.

    A flag wins over the environment, that over the file `config.toml` beside your identity, that
    over the default.
    """
    if ctx.invoked_subcommand is not None:
        return
    app: App = ctx.obj
    rows = [*_identity(app), *_settings(app)]
    if as_json:
        settings = [
            {"key": key, "value": plain(key, value), "origin": where} for key, value, where in rows
        ]
        click.echo(document({"settings": settings, "file": str(app.home / FILE)}))
        return
    cells = (Cell("KEY"), Cell("VALUE"), Cell("FROM"))
    click.echo(
        table(cells, [(key, value or "-", where) for key, value, where in rows], app.look()),
        nl=False,
    )


@config.command(
    "set",
    epilog=examples("dlq config set color never", "dlq config set patience_s 60")
    + "\n\n\b\nSettings:\n"
    + _LINES,
)
@click.argument("key", type=click.Choice(list(KEYS)), metavar="KEY")
@click.argument("value")
@pass_app
def set_(app: App, key: str, value: str) -> None:
    """Keep a value for KEY in `config.toml`; a flag or the environment still wins."""
    path = app.home / FILE
    change_file(path, key, value)
    click.echo(f"{key}: {app.settings.get(key).value}  ({app.settings.get(key).origin})")


@config.command("unset", epilog=examples("dlq config unset color"))
@click.argument("key", metavar="KEY")
@pass_app
def unset(app: App, key: str) -> None:
    """Take KEY out of `config.toml`; one that is not there stays so. Also for a key that is none."""
    change_file(app.home / FILE, key, None)
    if key in KEYS:
        click.echo(f"{key}: {app.settings.get(key).value}  ({app.settings.get(key).origin})")


def _settings(app: App) -> list[tuple[str, str | None, str]]:
    return [(name, *app.settings.get(name)) for name in KEYS]


def _identity(app: App) -> list[tuple[str, str | None, str]]:
    """Who one is here, without asking anybody."""
    from dlq_client.identity import CLUSTER_FILE, load_identity

    home = ("home", str(app.home), app.home_origin)
    identity = load_identity(app.home)
    if identity is None:
        return [home, ("master", None, "nobody is logged in here: dlq login")]
    where = str(app.home / CLUSTER_FILE)
    return [
        home,
        ("master", identity.address, where),
        ("cluster", identity.cluster, where),
        ("user", identity.user, where),
        ("role", identity.role, where),
        ("certificate_until", format_instant(identity.expires_s), where),
    ]
