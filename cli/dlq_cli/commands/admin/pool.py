"""`dlq admin pool`: machines that are rented from providers."""

from __future__ import annotations

from collections.abc import Sequence

import click

from dlq.v1 import pool_service_pb2 as wire
from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.exit_codes import FAILURE, Ended
from dlq_cli.facts.cluster import machine_facts, pool_facts, pools_facts
from dlq_cli.facts.common import tell
from dlq_cli.patience import duration_s, look_until
from dlq_cli.text.pools import GONE, machines_text, pools_text
from dlq_client.pools import Pools
from dlq_common.errors import InvalidRequest


@click.group()
def pool() -> None:
    """Rented machines: their costs, their states, and a way to give them back.

    master.toml names the machines that may be rented ([[pools]]). The scheduler rents them for
    jobs.
    """


@pool.command("list", epilog=examples("dlq admin pool list"))
@json_option
@pass_app
def list_(app: App, as_json: bool) -> None:
    """Every pool, and the cost of all machines."""
    told = Pools(app.connection()).list()
    tell(pools_facts(told), lambda: pools_text(told, app.look()).rstrip() + "\n", as_json=as_json)


@pool.command(epilog=examples("dlq admin pool show spot"))
@json_option
@click.argument("name")
@pass_app
def show(app: App, name: str, as_json: bool) -> None:
    """The machines of one pool, present and recent."""
    (one,) = Pools(app.connection()).list(name).pools
    text = machines_text(one.machines, app.look()).rstrip() + "\n"
    tell({"pool": pool_facts(one)}, lambda: text, as_json=as_json)


@pool.command(
    epilog=examples("dlq admin pool stop spot-3-1 --wait 5m", "dlq admin pool stop --pool spot")
)
@click.option("--pool", "pool_name", metavar="NAME", help="All machines of this pool.")
@click.option(
    "--wait",
    metavar="DURATION",
    help="Wait until they are gone; exit code 1 if they still exist by then.",
)
@json_option
@click.argument("machine", nargs=-1, metavar="[MACHINE...]")
@pass_app
def stop(
    app: App, machine: tuple[str, ...], pool_name: str | None, wait: str | None, as_json: bool
) -> None:
    """Give machines back. Jobs on them save and queue again; the scheduler may rent more
    machines.
    """
    if bool(machine) is bool(pool_name):
        raise InvalidRequest("name machines, or --pool", field="machine")
    patience_s = duration_s("--wait", wait)
    api = Pools(app.connection())
    asked = api.stop(machine, pool_name or "")
    machines = look_until(_all_gone, lambda seen: _now(api, seen), asked, patience_s)
    facts = {"machines": [machine_facts(one) for one in machines]}
    tell(facts, lambda: machines_text(machines, app.look()), as_json=as_json)
    if wait is not None and not _all_gone(machines):
        raise Ended(FAILURE)


def _all_gone(machines: Sequence[wire.Machine]) -> bool:
    return all(one.state in GONE for one in machines)


def _now(api: Pools, machines: Sequence[wire.Machine]) -> Sequence[wire.Machine]:
    wanted = {one.request_id for one in machines}
    return [one for pool in api.list().pools for one in pool.machines if one.request_id in wanted]
