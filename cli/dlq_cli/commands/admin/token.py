"""`dlq admin token`: join tokens for new nodes."""

from __future__ import annotations

import click

from dlq.v1.admin_service_pb2 import JoinToken
from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.facts.cluster import token_facts
from dlq_cli.facts.common import document, tell
from dlq_cli.output.render import Cell, Columns, listing, when
from dlq_cli.patience import duration_s
from dlq_client.admin import Admin
from dlq_common.text.wire import from_timestamp


@click.group()
def token() -> None:
    """Join tokens for new nodes."""


@token.command(
    epilog=examples("dlq admin token create", "dlq admin token create --node gpu07 --ttl 15m")
)
@click.option(
    "--node", "node_id", default="", metavar="NODE", help="The token is for this node only."
)
@click.option("--ttl", metavar="TIME", help="Life of the token, at most 7 days.  [default: 1h]")
@json_option
@pass_app
def create(app: App, node_id: str, ttl: str | None, as_json: bool) -> None:
    """Make a token with which one node can join; its secret is shown once, here."""
    made = Admin(app.connection()).create_token(
        node_id=node_id, lifetime_s=duration_s("--ttl", ttl)
    )
    if as_json:
        secret = {"secret": made.secret, "join_address": made.join_address or None}
        click.echo(document({"tokens": [{**token_facts(made.token), **secret}]}))
        return
    click.echo(made.secret)
    until = when(from_timestamp(made.token.expire_time), app.look())
    app.say(
        f"token {made.token.token_id}, made {until}" if app.look().tty else f"good until {until}"
    )
    address = made.join_address or "HOST:PORT"
    app.say(
        f"on the new node: dlq-nodeagent join --config /etc/dlq/nodeagent.toml --master {address} "
        "TOKEN"
    )


@token.command(name="list", epilog=examples("dlq admin token list"))
@json_option
@pass_app
def list_(app: App, as_json: bool) -> None:
    """Tokens that can still be used, without their secrets."""
    found = Admin(app.connection()).tokens()
    look = app.look()
    columns: Columns[JoinToken] = {
        Cell("TOKEN"): lambda one: one.token_id,
        Cell("NODE"): lambda one: one.node_id or "any",
        Cell("MADE_BY"): lambda one: one.created_by,
        Cell("EXPIRES"): lambda one: when(from_timestamp(one.expire_time), look),
    }
    facts = {"tokens": [token_facts(one) for one in found]}
    tell(facts, lambda: listing(columns, found, look), as_json=as_json)


@token.command(epilog=examples("dlq admin token revoke 3f9a"))
@click.argument("token_id", nargs=-1, required=True)
@pass_app
def revoke(app: App, token_id: tuple[str, ...]) -> None:
    """Make TOKEN_ID... useless."""
    admin = Admin(app.connection())
    for one in token_id:
        admin.revoke_token(one)
        click.echo(f"token {one}: revoked")
