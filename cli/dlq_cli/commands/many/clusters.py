"""`dlq clusters`: the list of clusters of this user."""

from __future__ import annotations

import click

from dlq_cli.app import App
from dlq_cli.clusters.listed import Clusters
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.facts.common import Facts, document
from dlq_cli.output.render import Cell, table
from dlq_common.errors import DlqError
from dlq_common.text.instants import format_instant

CELLS = (
    Cell("CLUSTER"), Cell("USER"), Cell("ADDRESS", least=12), Cell("GPU-HOUR", right=True, drop=2),
    Cell("STATE"), Cell("HOME", least=12, drop=1),
)  # fmt: skip


@click.command(epilog=examples("dlq clusters", "dlq clusters --json"))
@click.option("--no-header", is_flag=True, help="No headings.")
@json_option
@pass_app
def clusters(app: App, no_header: bool, as_json: bool) -> None:
    """The clusters of `clusters.toml`, and your identity at each. No cluster is asked.

    `dlq submit --to any` asks all of them, and `dlq status NAME:17` looks at a job of one.
    """
    listed = Clusters(app)
    rows = [_facts(app, listed, name) for name in listed.all]
    if as_json:
        click.echo(document({"clusters": rows, "file": str(listed.path)}))
        return
    texts = [_texts(row) for row in rows]
    click.echo(table(CELLS, texts, app.look(), headings=not no_header and bool(texts)), nl=False)
    if not rows:
        app.say(f"there is no list of clusters: {listed.path}")


def _texts(row: Facts) -> list[str]:
    price = row["price_per_gpu_hour"]
    told = "" if price is None else f"{price:.2f}"
    return [
        row["cluster"], row["user"] or "", row["address"] or "", told, row["state"], row["home"],
    ]  # fmt: skip


def _facts(app: App, listed: Clusters, name: str) -> Facts:
    from dlq_client.line.identity import load_identity

    one, identity, state = listed.all[name], None, "no identity"
    try:
        identity = load_identity(one.home)
    except DlqError as error:
        state = error.what
    if identity is not None:
        state = "ready" if identity.is_valid(app.clock.now_s()) else "certificate has ended"
    return {
        "cluster": name,
        "user": None if identity is None else identity.user,
        "address": None if identity is None else identity.address,
        "price_per_gpu_hour": one.price,
        "expire_time": None if identity is None else format_instant(identity.expires_s),
        "state": state,
        "home": str(one.home),
    }
