"""`dlq admin revoke`: certificates that count for nothing from now on."""

from __future__ import annotations

import click

from dlq.v1.admin_service_pb2 import Revocation, RevokeCertificatesResponse
from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app, yes_option
from dlq_cli.facts.cluster import revocation_facts
from dlq_cli.facts.common import tell
from dlq_cli.output.render import Cell, Columns, listing, when
from dlq_client.admin import Admin
from dlq_common.text.wire import from_timestamp

_reason = click.option("--reason", default="", metavar="WORDS", help="Words for the journal.")


@click.group(
    epilog=examples(
        'dlq admin revoke user carol --reason "laptop stolen"',
        "dlq admin revoke node gpu07",
        "dlq admin revoke serial 5f0c…",
        "dlq admin revoke list",
    )
)
def revoke() -> None:
    """Make certificates worthless, and end the open streams of their holders at once.

    Users, services and nodes stay, and may get new certificates.
    """


@revoke.command(epilog=examples("dlq admin revoke user carol", "dlq admin revoke user dlq-web -y"))
@yes_option
@_reason
@click.argument("name")
@pass_app
def user(app: App, name: str, reason: str, yes: bool) -> None:
    """All certificates that user or service NAME has by now.

    Sessions and tokens of NAME at web servers end too. Jobs go on. NAME logs in anew.
    """
    app.confirm(f"all present certificates of {name} become worthless", yes=yes)
    _tell(f"user {name}", Admin(app.connection()).revoke(user=name, reason=reason))


@revoke.command(epilog=examples("dlq admin revoke node gpu07"))
@yes_option
@_reason
@click.argument("name")
@pass_app
def node(app: App, name: str, reason: str, yes: bool) -> None:
    """All certificates that node NAME has by now.

    Its agent is cut off, and its jobs go on for their leases. It joins again with a new token:
    dlq admin token create --node NAME.
    """
    app.confirm(f"the agent of {name} is cut off until it has joined again", yes=yes)
    _tell(f"node {name}", Admin(app.connection()).revoke(node_id=name, reason=reason))


@revoke.command(epilog=examples("dlq admin revoke serial 5f0c9a"))
@yes_option
@_reason
@click.argument("number")
@pass_app
def serial(app: App, number: str, reason: str, yes: bool) -> None:
    """One certificate, by its serial NUMBER in hexadecimal digits.

    The audit names the serial of each call. The holder may have renewed the certificate before:
    then revoke all of the user or node.
    """
    plain = number.replace(":", "").lower().lstrip("0")
    app.confirm(f"the certificate {plain} becomes worthless", yes=yes)
    _tell(f"certificate {plain}", Admin(app.connection()).revoke(serial=plain, reason=reason))


@revoke.command(name="list", epilog=examples("dlq admin revoke list"))
@json_option
@pass_app
def list_(app: App, as_json: bool) -> None:
    """All revocations, the oldest first."""
    found = Admin(app.connection()).revocations()
    look = app.look()
    columns: Columns[Revocation] = {
        Cell("KIND"): lambda one: one.kind,
        Cell("NAME"): lambda one: one.name,
        Cell("REVOKED"): lambda one: when(from_timestamp(one.create_time), look),
        Cell("BY"): lambda one: one.created_by,
        Cell("REASON"): lambda one: one.reason,
    }
    facts = {"revocations": [revocation_facts(one) for one in found]}
    tell(facts, lambda: listing(columns, found, look), as_json=as_json)


def _tell(whose: str, done: RevokeCertificatesResponse) -> None:
    streams = "1 open stream" if done.cut_count == 1 else f"{done.cut_count} open streams"
    click.echo(f"{whose}: revoked, {streams} ended")
