"""`dlq config`: the settings that hold here, where each came from, and changing them."""

from __future__ import annotations

import click

from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.facts.common import document
from dlq_cli.output.render import Cell, table
from dlq_cli.settings import FILE, KEYS, change_file, plain, reset_file
from dlq_common.text.instants import format_instant

_LINES = "\n".join(f"  {key.name:<13} {key.help}" for key in KEYS.values())


@click.group(
    invoke_without_command=True,
    epilog=examples("dlq config", "dlq config --json", "dlq config set color never"),
)
@json_option
@click.pass_context
def config(ctx: click.Context, as_json: bool) -> None:
    """Show the settings of `dlq` here, with the identity and the source of each value.

    A flag wins over the environment. The environment wins over the file `config.toml` beside your
    identity, and the file over the default.
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
@json_option
@click.argument("key", type=click.Choice(list(KEYS)), metavar="KEY")
@click.argument("value")
@pass_app
def set_(app: App, key: str, value: str, as_json: bool) -> None:
    """Keep a value for KEY in `config.toml`; a flag or the environment still wins."""
    change_file(app.home / FILE, key, value)
    _tell(app, key, as_json=as_json)


@config.command("unset", epilog=examples("dlq config unset color"))
@json_option
@click.argument("key", metavar="KEY")
@pass_app
def unset(app: App, key: str, as_json: bool) -> None:
    """Take KEY out of `config.toml`; one that is not there stays so. Also takes out a key that dlq
    does not know.
    """
    change_file(app.home / FILE, key, None)
    if key in KEYS:
        _tell(app, key, as_json=as_json)
    elif as_json:
        click.echo(document({"settings": []}))


@config.command(epilog=examples("dlq config reset"))
@json_option
@pass_app
def reset(app: App, as_json: bool) -> None:
    """Back to the defaults: put `config.toml` aside as `config.toml.old`, even when it is
    broken.
    """
    aside = reset_file(app.home / FILE)
    if as_json:
        click.echo(document({"aside": None if aside is None else str(aside)}))
    elif aside is None:
        click.echo("there was nothing to reset")
    else:
        click.echo(f"the old settings are in {aside}")


def _tell(app: App, key: str, *, as_json: bool) -> None:
    """Print the value of the key that holds now."""
    found = app.settings.get(key)
    if as_json:
        setting = {"key": key, "value": plain(key, found.value), "origin": found.origin}
        click.echo(document({"settings": [setting]}))
    else:
        click.echo(f"{key}: {found.value}  ({found.origin})")


def _settings(app: App) -> list[tuple[str, str | None, str]]:
    return [(name, *app.settings.get(name)) for name in KEYS]


def _identity(app: App) -> list[tuple[str, str | None, str]]:
    """The caller's identity on this host; asks no server."""
    from dlq_client.line.identity import CLUSTER_FILE, load_identity

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
