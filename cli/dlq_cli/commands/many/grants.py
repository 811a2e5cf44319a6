"""`dlq admin grants`: GPUs that two organisations lend to each other, and their account."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from dlq.v1.admin_service_pb2 import Grant, GrantLimits, MakeGrantRequest
from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app, yes_option
from dlq_cli.facts.cluster import grant_facts
from dlq_cli.facts.common import tell
from dlq_cli.output.render import Cell, Columns, listing, when
from dlq_cli.patience import duration_s
from dlq_client.admin import Admin
from dlq_common.errors import InvalidRequest, NotFound
from dlq_common.text.wire import from_timestamp, to_duration

HOUR_S = 3_600.0


@click.group(
    epilog=examples(
        "dlq admin grants give orga --ca orga-ca.crt --accounts guest1,guest2 --gpus 8",
        "dlq admin grants take roof.grant --as roof",
        "dlq admin grants list",
        "dlq admin grants account",
        'dlq admin grants revoke 5f0c9a… --reason "the agreement has ended"',
    )
)
def grants() -> None:
    """Lend GPUs to another organisation, and use those that it lends.

    A grant names the other organisation by its CA, the accounts of its guests, and limits. Each
    cluster keeps its own users and keys.
    """


@grants.command(
    epilog=examples(
        "dlq admin grants give orga --ca orga-ca.crt --accounts guest1 --gpus 8 > orga.grant",
        "dlq admin grants give orga --ca orga-ca.crt --accounts g1,g2,g3 --gpus 16 \\",
        "  --gpu-hours 2000 --per-days 30 --queue low --until 365d --replace",
    )
)
@click.option(
    "--ca", required=True, type=click.Path(path_type=Path), metavar="FILE",
    help="Its CA: ca.crt of an identity directory there.",
)  # fmt: skip
@click.option(
    "--accounts", required=True, metavar="NAME,NAME",
    help="Accounts of your hosts for its guests, one for each guest.",
)  # fmt: skip
@click.option("--gpus", required=True, type=click.IntRange(min=1), help="GPUs at a time, in all.")
@click.option("--gpu-hours", type=click.FloatRange(min=0, min_open=True), help="In each period.")
@click.option("--per-days", type=click.IntRange(min=1), default=30, show_default=True,
              help="Length of a period, from today on.")  # fmt: skip
@click.option("--queue", "queues", multiple=True, metavar="NAME",
              help="A queue for them; may be repeated.  [default: the default queue]")  # fmt: skip
@click.option("--by-right", type=click.IntRange(min=0), default=0, metavar="N",
              help="So many of the GPUs are theirs by right; the rest they borrow.")  # fmt: skip
@click.option("--guaranteed", type=click.IntRange(min=0), default=0, metavar="N",
              help="GPUs of jobs with promised deadlines.")  # fmt: skip
@click.option("--running", type=click.IntRange(min=0), help="Jobs that run at a time.")
@click.option("--until", default="90d", show_default=True, metavar="TIME", help="How long.")
@click.option("--team", default="", metavar="NAME",
              help="The team of their jobs; it is made.  [default: ORGANISATION]")  # fmt: skip
@click.option("--replace", is_flag=True, help="End the present grant for this one; jobs go on.")
@click.argument("organisation")
@pass_app
def give(
    app: App,
    organisation: str,
    ca: Path,
    accounts: str,
    gpus: int,
    gpu_hours: float | None,
    per_days: int,
    queues: Sequence[str],
    by_right: int,
    guaranteed: int,
    running: int | None,
    until: str,
    team: str,
    replace: bool,
) -> None:
    """Lend GPUs to ORGANISATION, and print the signed grant.

    ORGANISATION is your word for it: its guests are called USER@ORGANISATION here. Its operator
    takes the printed file with `dlq admin grants take`.
    """
    lifetime_s = duration_s("--until", until)
    admin = Admin(app.connection())
    made = admin.make_grant(
        MakeGrantRequest(
            organisation=organisation,
            ca_certificates=_read(ca),
            accounts=[name for name in accounts.split(",") if name],
            limits=GrantLimits(
                gpu_count=gpus,
                gpu_hours=gpu_hours,
                period_days=per_days,
                queues=queues,
                running_job_count=running,
                guaranteed_gpu_count=guaranteed,
                quota_gpu_count=by_right,
            ),
            lifetime_duration=to_duration(float(lifetime_s or 0)),
            team=team,
            replace=replace,
        )
    )
    app.say(f"grant {made.serial} for {made.cluster_name}, CA {made.ca_fingerprint}")
    click.echo(admin.sign_document(made.serial, "grant"))


@grants.command(epilog=examples("dlq admin grants take roof.grant --as roof"))
@click.option("--as", "organisation", default="", metavar="NAME",
              help="Your word for the other one.  [default: the name of its cluster]")  # fmt: skip
@click.option("--users", default="", metavar="NAME,NAME", help="Who may use it.  [default: all]")
@yes_option
@json_option
@click.argument("file", type=click.Path(path_type=Path))
@pass_app
def take(app: App, file: Path, organisation: str, users: str, yes: bool, as_json: bool) -> None:
    """Keep a grant or a statement that another organisation has signed.

    A grant brings the CA of the other cluster along: compare its fingerprint with the operator
    there.
    """
    text = _read(file).decode("utf-8", "replace").strip()
    if not yes:
        app.confirm(_of_whom(text), yes=False)
    named = [name for name in users.split(",") if name]
    grant = Admin(app.connection()).take_document(text, organisation, named)
    tell({"grant": grant_facts(grant)}, lambda: _took(grant), as_json=as_json)


@grants.command(
    name="list", epilog=examples("dlq admin grants list", "dlq admin grants list --json")
)
@json_option
@pass_app
def list_(app: App, as_json: bool) -> None:
    """Grants that were given and got, with their use."""
    found = Admin(app.connection()).grants()
    look = app.look()
    columns: Columns[Grant] = {
        Cell("GRANT"): lambda one: one.serial,
        Cell("WITH"): lambda one: one.organisation,
        Cell("IS"): lambda one: "got" if one.held else f"given, {one.state}",
        Cell("TEAM"): lambda one: one.team,
        Cell("GPUS", right=True): lambda one: str(one.limits.gpu_count),
        Cell("GPU-HOURS", right=True): _hours,
        Cell("GUESTS", right=True): lambda one: "" if one.held else _guests(one),
        Cell("UNTIL"): lambda one: when(from_timestamp(one.expire_time), look),
    }
    facts = {"grants": [grant_facts(one) for one in found]}
    tell(facts, lambda: listing(columns, found, look), as_json=as_json)


@grants.command(
    epilog=examples("dlq admin grants revoke 5f0c9a2b1d3e4f60", "dlq admin grants revoke roof")
)
@yes_option
@click.option("--reason", default="", metavar="WORDS", help="Words for the journal.")
@click.argument("serial")
@pass_app
def revoke(app: App, serial: str, reason: str, yes: bool) -> None:
    """End the grant with this number at once, and cancel the jobs of its guests.

    Of a grant that was got, the number or your word for the other one: your users are introduced
    there no more.
    """
    app.confirm(f"guests under grant {serial} are refused, and their jobs end", yes=yes)
    done = Admin(app.connection()).revoke_grant(serial, reason)
    streams = "1 open stream" if done.cut_count == 1 else f"{done.cut_count} open streams"
    jobs = "1 job" if done.cancelled_count == 1 else f"{done.cancelled_count} jobs"
    click.echo(f"grant {done.grant.serial}: revoked, {jobs} cancelled, {streams} ended")


@grants.command(epilog=examples("dlq admin grants statement orga > orga.statement"))
@click.argument("organisation")
@pass_app
def statement(app: App, organisation: str) -> None:
    """Print what the guests of ORGANISATION have used here, signed; its operator takes it."""
    admin = Admin(app.connection())
    found = [one for one in admin.grants() if not one.held]
    named = [one for one in found if organisation in (one.serial, one.organisation)]
    if not named:
        raise NotFound(f"no grant was given to {organisation}", kind="grant", id=organisation)
    click.echo(admin.sign_document(named[-1].serial, "statement"))


@grants.command(epilog=examples("dlq admin grants account", "dlq admin grants account --json"))
@json_option
@pass_app
def account(app: App, as_json: bool) -> None:
    """GPU-hours lent to each organisation, owed to it by its last statement, and the difference."""
    rows: dict[str, dict[str, object]] = {}
    for one in Admin(app.connection()).grants():
        row = rows.setdefault(
            one.ca_fingerprint,
            {"organisation": one.organisation, "cluster_name": one.cluster_name,
             "lent_gpu_hours": 0.0, "owed_gpu_hours": 0.0, "statement_time": None},
        )  # fmt: skip
        key = "owed_gpu_hours" if one.held else "lent_gpu_hours"
        row[key] = max(_number(row[key]), one.used_gpu_seconds / HOUR_S)
        if one.held and one.HasField("account_time"):
            row["statement_time"] = one.account_time.ToJsonString()
    for row in rows.values():
        row["net_gpu_hours"] = _number(row["lent_gpu_hours"]) - _number(row["owed_gpu_hours"])
    look = app.look()
    columns: Columns[dict[str, object]] = {
        Cell("WITH"): lambda row: str(row["organisation"]),
        Cell("CLUSTER"): lambda row: str(row["cluster_name"]),
        Cell("LENT", right=True): lambda row: f"{_number(row['lent_gpu_hours']):.2f}",
        Cell("OWED", right=True): lambda row: f"{_number(row['owed_gpu_hours']):.2f}",
        Cell("NET", right=True): lambda row: f"{_number(row['net_gpu_hours']):+.2f}",
        Cell("STATEMENT"): lambda row: str(row["statement_time"] or "none yet"),
    }
    told = list(rows.values())
    tell({"accounts": told}, lambda: listing(columns, told, look), as_json=as_json)


# --- helpers, in order of use ---------------------------------------------------------------------


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{path}: {error.strerror}") from None


def _of_whom(text: str) -> str:
    """The impact of taking a document, by its own words."""
    from dlq_common.identity.pki import fingerprint
    from dlq_common.identity.signed import GRANT, claimed

    kind, body = claimed(text)
    if kind != GRANT:
        return f"this {kind} about grant {body.get('grant')} is kept"
    try:
        seal = fingerprint(str(body["ca"]).encode())
    except (KeyError, ValueError):
        raise InvalidRequest("this grant names no CA", field="document") from None
    return f"your users may go to {body.get('cluster')}, which has the CA {seal}"


def _took(grant: Grant) -> str:
    hours = grant.used_gpu_seconds / HOUR_S
    return f"grant {grant.serial} of {grant.organisation}: {hours:.2f} GPU-hours owed\n"


def _hours(one: Grant) -> str:
    """Used in the present period, of those that it has; of one that was got in all."""
    if one.held:
        return f"{one.used_gpu_seconds / HOUR_S:.2f}"
    used = f"{one.period_gpu_seconds / HOUR_S:.2f}"
    return f"{used} of {one.limits.gpu_hours:g}" if one.limits.HasField("gpu_hours") else used


def _guests(one: Grant) -> str:
    return f"{len(one.guests)} of {len(one.accounts)}"


def _number(value: object) -> float:
    assert isinstance(value, float)
    return value
