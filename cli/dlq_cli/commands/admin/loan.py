"""`dlq admin loan` and `dlq admin reclaim`: servers that the inference side lends to training."""

from __future__ import annotations

from collections.abc import Sequence

import click

from dlq.v1 import loan_service_pb2 as wire
from dlq_cli.app import App
from dlq_cli.commands.cluster.nodes import names_of
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.exit_codes import FAILURE, Ended
from dlq_cli.facts.cluster import controller_facts, plan_facts, server_facts
from dlq_cli.facts.common import tell
from dlq_cli.patience import duration_s, look_until
from dlq_cli.text.loans import controller_text, plan_text, servers_text
from dlq_client.loans import Loans
from dlq_common.errors import InvalidRequest

_MOST = 2**31 - 1  # of an int32
_count = click.option(
    "--count", type=click.IntRange(1, _MOST), metavar="N", help="Number of servers."
)
_wait = click.option(
    "--wait",
    metavar="DURATION",
    help="Wait until all are there; exit code 1 if they are not by then.",
)


class _LendGroup(click.Group):
    """A word that is no command of the group is a host to lend, or a count."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """`loan inf01` is `loan lend inf01`."""
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["lend", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_LendGroup)
def loan() -> None:
    """Servers of the inference side: list the lent ones, or lend more. HOST... or --count alone
    lends.

    A server takes jobs only while it is lent, and is lent only once its devices show that nothing
    is on them.
    """


@loan.command(epilog=examples("dlq admin loan status"))
@json_option
@pass_app
def status(app: App, as_json: bool) -> None:
    """Every server of the inference side, with its state and the reason for a wait."""
    _show(app, Loans(app.connection()).servers(), as_json=as_json)


@loan.command(epilog=examples("dlq admin loan auto", "dlq admin loan auto off"))
@json_option
@click.argument("switch", required=False, type=click.Choice(["on", "off"]), metavar="[on|off]")
@pass_app
def auto(app: App, switch: str | None, as_json: bool) -> None:
    """Whether servers are lent by the load of the inference side, and how that goes ([loans] in
    master.toml).

    `off` leaves lending and reclaiming to people until it is `on` again, over restarts of the
    master. Lent servers stay lent.
    """
    api = Loans(app.connection())
    told = api.controller() if switch is None else api.switch(on=switch == "on")
    facts = None if told is None else controller_facts(told)
    tell({"controller": facts}, lambda: controller_text(told, app.look()), as_json=as_json)


@loan.command(
    epilog=examples(
        "dlq admin loan lend inf[01-04]",
        "dlq admin loan --count 4 --wait 30s   # the same word left out",
    )
)
@_count
@_wait
@json_option
@click.argument("host", nargs=-1, metavar="[HOST...]")
@pass_app
def lend(
    app: App, host: tuple[str, ...], count: int | None, wait: str | None, as_json: bool
) -> None:
    """Lend HOST..., or --count of the servers that can be lent."""
    names, number = _which(host, count)
    patience_s = duration_s("--wait", wait)
    api = Loans(app.connection())
    servers = api.lend(names, number)
    _show(app, _until(api, servers, "lent", patience_s), as_json=as_json)
    _all_are(servers=_now(api, servers), state="lent", asked=wait)


@click.command(
    epilog=examples(
        "dlq admin reclaim --count 2 --plan",
        "dlq admin reclaim --token 3f2a9c417d60",
        "dlq admin reclaim inf03 --within 60s --force --wait 2m",
    )
)
@_count
@click.option("--within", metavar="DURATION", help="Time until they must be empty.")
@click.option("--force", is_flag=True, help="End jobs that would still save by then.")
@click.option(
    "--plan", "plan_only", is_flag=True, help="Only show the effects, and make a token for them."
)
@click.option("--token", metavar="TOKEN", help="Do exactly the plan of --plan, or nothing.")
@_wait
@json_option
@click.argument("host", nargs=-1, metavar="[HOST...]")
@pass_app
def reclaim(
    app: App,
    host: tuple[str, ...],
    count: int | None,
    within: str | None,
    force: bool,
    plan_only: bool,
    token: str | None,
    wait: str | None,
    as_json: bool,
) -> None:
    """Take HOST... back, or --count of the lent ones, so that the fewest jobs are preempted.

    Nothing new starts there from then on. Jobs that can go on with their other GPUs do so, the
    others save and queue again. A server has gone when its devices show that nothing is on them.
    """
    if token and plan_only:
        raise InvalidRequest("--plan makes a token, and --token wants one", field="token")
    if token and (within or force) and not (host or count):
        raise InvalidRequest(
            "beside --token give all arguments of the plan, or none", field="token"
        )
    if force and within is None:
        raise InvalidRequest("--force needs a time", field="force", hint="--within 60s --force")
    names, number = ([], 0) if token and not (host or count) else _which(host, count)
    within_s = duration_s("--within", within)
    patience_s = duration_s("--wait", wait)
    api = Loans(app.connection())
    if plan_only:
        plan = api.plan(names, number, within_s=within_s, force=force)
        _tell_plan(app, plan, [], as_json=as_json)
        return
    done = api.reclaim(names, number, within_s=within_s, force=force, token=token or "")
    servers = _until(api, done.servers, "away", patience_s)
    _tell_plan(app, done.plan, servers, as_json=as_json)
    _all_are(servers=servers, state="away", asked=wait)


def _which(hosts: Sequence[str], count: int | None) -> tuple[list[str], int]:
    if bool(hosts) is bool(count):
        raise InvalidRequest("name servers, or give a number", hint="HOST..., or --count N")
    return names_of(hosts), count or 0


def _until(
    api: Loans, servers: Sequence[wire.LoanServer], state: str, patience_s: float | None
) -> Sequence[wire.LoanServer]:
    """The same servers, once all have that state or the patience is over."""
    return look_until(
        lambda seen: all(one.state == state for one in seen),
        lambda seen: _now(api, seen),
        servers,
        patience_s,
    )


def _now(api: Loans, servers: Sequence[wire.LoanServer]) -> Sequence[wire.LoanServer]:
    wanted = {one.node_id for one in servers}
    return [one for one in api.servers() if one.node_id in wanted]


def _all_are(*, servers: Sequence[wire.LoanServer], state: str, asked: str | None) -> None:
    if asked is not None and any(one.state != state for one in servers):
        raise Ended(FAILURE)


def _show(app: App, servers: Sequence[wire.LoanServer], *, as_json: bool) -> None:
    facts = [server_facts(one) for one in servers]
    tell({"servers": facts}, lambda: servers_text(servers, app.look()), as_json=as_json)


def _tell_plan(
    app: App, plan: wire.ReclaimPlan, servers: Sequence[wire.LoanServer], *, as_json: bool
) -> None:
    def text() -> str:
        look = app.look()
        return plan_text(plan, look) + (servers_text(servers, look) if servers else "")

    facts = {"plan": plan_facts(plan), "servers": [server_facts(one) for one in servers]}
    tell(facts, text, as_json=as_json)
