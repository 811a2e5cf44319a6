"""`dlq version`: the versions of both ends."""

from __future__ import annotations

import importlib.metadata

import click

from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.exit_codes import Ended, code_of_error
from dlq_cli.quiet import quiet_grpc
from dlq_common.errors import DlqError


@click.command(epilog=examples("dlq version", "dlq version --client"))
@click.option("--client", "client_only", is_flag=True, help="Do not ask the master.")
@json_option
@pass_app
def version(app: App, client_only: bool, as_json: bool) -> None:
    """The version of this program and of the master."""
    here = client_version()
    if not as_json:
        click.echo(f"dlq {here}")
    if client_only:
        if as_json:
            _json(here, None)
        return
    from dlq_cli.output.render import clean_line

    try:
        with quiet_grpc():
            from dlq_client.queues import Queues

        cluster = Queues(app.connection()).cluster()
    except DlqError as error:
        if as_json:
            _json(here, None)
        app.say(error.what)
        raise Ended(code_of_error(error)) from None
    if as_json:
        from dlq_cli.facts.cluster import cluster_facts

        _json(here, cluster_facts(cluster))
        return
    click.echo(
        f"master {clean_line(cluster.master_version)}, epoch {cluster.epoch}, "
        f"cluster {clean_line(cluster.cluster_name)}"
    )
    click.echo(f"you are {clean_line(cluster.caller)} ({clean_line(cluster.role)})")


def client_version() -> str:
    """The installed version of this distribution."""
    return importlib.metadata.version("dlq")


def _json(here: str, cluster: dict[str, object] | None) -> None:
    from dlq_cli.facts.common import document

    click.echo(document({"client_version": here, "cluster": cluster}))
