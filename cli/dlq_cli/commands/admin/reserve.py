"""`dlq admin reserve` and `dlq admin reservation`: nodes that are kept free for maintenance."""

from __future__ import annotations

import click

from dlq.v1 import reservation_service_pb2 as wire
from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app, yes_option
from dlq_cli.facts.cluster import reservation_facts
from dlq_cli.facts.common import document, tell
from dlq_cli.output.render import Cell, Columns, OutputLook, absolute, listing, when
from dlq_cli.output.zone import LocalZone
from dlq_client.nodes import Nodes
from dlq_client.reservations import Reservations
from dlq_common.errors import InvalidRequest, WorkWouldBeLost
from dlq_common.job_fields.reading.ordering import begin_s
from dlq_common.text.hostlist import compress_hostlist, expand_hostlist
from dlq_common.text.units import parse_span
from dlq_common.text.wire import from_timestamp


@click.command(
    epilog=examples(
        "dlq admin reserve gpu[01-04] --from 2026-12-01T08:00 --for 4h --reason 'new fans'",
        "dlq admin reserve gpu07 --to 18:00 --reason 'driver 580'",
        "dlq admin reserve --all --for 12h --reason 'the machine room is closed'",
    )
)
@click.option(
    "--from", "begin", metavar="TIME", help="18:00, 2026-12-01T08:00, now+2hours.  [default: now]"
)
@click.option("--to", "end", metavar="TIME", help="End of the reservation.")
@click.option("--for", "span", metavar="TIME", help="Length of the reservation: 4h, 90m, 1d.")
@click.option("--all", "every_node", is_flag=True, help="All nodes: to empty the cluster.")
@click.option("--reason", default="", metavar="TEXT", help="Words for people.")
@yes_option
@json_option
@click.argument("node_id", nargs=-1, metavar="NODE...")
@pass_app
def reserve(
    app: App,
    node_id: tuple[str, ...],
    every_node: bool,
    begin: str | None,
    end: str | None,
    span: str | None,
    reason: str,
    yes: bool,
    as_json: bool,
) -> None:
    """Keep NODE... free for a while. NODE may be a list: gpu[01-08].

    From now on no job starts there that would run into it, and deadlines are promised without these
    nodes. When it begins, jobs that still run there save and go on elsewhere; when it ends, the
    nodes take work again. One that begins now asks first when work would be lost.

    With --all nothing new starts at this cluster, and other clusters make better offers. Users of
    several clusters then move on by `dlq move --all`.
    """
    if (end is None) == (span is None):
        raise InvalidRequest("when does it end? Give --to or --for, one of them")
    now_s = app.clock.now_s()
    begins_s = None if begin is None else _instant(now_s, "--from", begin)
    if span is not None:
        ends_s = (now_s if begins_s is None else begins_s) + _span(span)
    else:
        ends_s = _instant(now_s, "--to", end or "")
    if bool(node_id) == every_node:
        raise InvalidRequest("which nodes? Name some, or say --all")
    nodes = [name for text in node_id for name in _nodes(text)]
    if every_node:
        nodes = [node.node_id for node in Nodes(app.connection()).list()]
    reservations = Reservations(app.connection())
    try:
        made = reservations.create(nodes, begins_s, ends_s, reason, accept_loss=yes)
    except WorkWouldBeLost as error:
        app.confirm(error.what, yes=yes)
        made = reservations.create(nodes, begins_s, ends_s, reason, accept_loss=True)
    if as_json:
        click.echo(document({"reservations": [reservation_facts(made)]}))
        return
    look = app.look()
    begins, ends = (from_timestamp(it) for it in (made.begin_time, made.end_time))
    names = compress_hostlist(made.node_ids)
    click.echo(
        f"reserved {made.reservation_id}: {names}, {absolute(begins, look)} to "
        f"{absolute(ends, look)}"
    )
    if made.job_ids:
        app.say(f"jobs there now: {', '.join(made.job_ids)}")
    if made.late_job_ids:
        late = ", ".join(made.late_job_ids)
        app.say(f"of those {late} may run into it: they will be asked to save and go on elsewhere")


@click.group()
def reservation() -> None:
    """Nodes that are kept free for a while: list and cancel. Make one: dlq admin reserve."""


@reservation.command(name="list", epilog=examples("dlq admin reservation list"))
@json_option
@pass_app
def list_(app: App, as_json: bool) -> None:
    """Reservations that are not over, the first to begin first."""
    found = Reservations(app.connection()).list()
    look = app.look()
    facts = {"reservations": [reservation_facts(one) for one in found]}
    tell(facts, lambda: listing(reservation_columns(look), found, look), as_json=as_json)


@reservation.command(epilog=examples("dlq admin reservation cancel m1 -y"))
@yes_option
@click.argument("reservation_id")
@pass_app
def cancel(app: App, reservation_id: str, yes: bool) -> None:
    """Cancel reservation RESERVATION_ID, or end it early: its nodes take work again."""
    app.confirm(f"the nodes of {reservation_id} will take work again", yes=yes)
    Reservations(app.connection()).cancel(reservation_id)
    click.echo(f"reservation {reservation_id}: cancelled")


def reservation_columns(look: OutputLook) -> Columns[wire.Reservation]:
    """The columns of a list of reservations."""
    return {
        Cell("ID"): lambda one: one.reservation_id,
        Cell("STATE"): lambda one: one.state,
        Cell("NODES"): lambda one: compress_hostlist(one.node_ids),
        Cell("FROM"): lambda one: when(from_timestamp(one.begin_time), look),
        Cell("TO"): lambda one: when(from_timestamp(one.end_time), look),
        Cell("BY"): lambda one: one.created_by,
        Cell("JOBS"): lambda one: ",".join(one.job_ids) or "-",
        Cell("REASON"): lambda one: one.reason,
    }


def _instant(now_s: float, flag: str, text: str) -> float:
    try:
        return begin_s(text, now_s=now_s, zone=LocalZone())
    except ValueError as error:
        raise InvalidRequest(f"{flag}: {error}") from None


def _span(text: str) -> float:
    try:
        return parse_span(text)
    except ValueError as error:
        raise InvalidRequest(f"--for: {error}") from None


def _nodes(text: str) -> list[str]:
    try:
        return expand_hostlist(text)
    except ValueError as error:
        raise InvalidRequest(str(error)) from None
