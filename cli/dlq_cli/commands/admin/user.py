"""`dlq admin user`: rights of users, and the accounts of their jobs."""

from __future__ import annotations

import click

from dlq.v1 import admin_service_pb2
from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app, yes_option
from dlq_cli.facts.cluster import user_facts
from dlq_cli.facts.common import tell
from dlq_cli.output.render import Cell, Columns, listing, when
from dlq_client.admin import Admin
from dlq_common.errors import InvalidRequest
from dlq_common.text.wire import from_timestamp

ROLES = ("user", "operator", "admin", "inference", "notifier", "web")


@click.group(
    epilog=examples(
        "dlq admin user list",
        "dlq admin user set carol --role operator",
        "dlq admin user del carol",
    )
)
def user() -> None:
    """Rights of users, and the accounts in which their jobs run."""


@user.command(name="list", epilog=examples("dlq admin user list"))
@json_option
@pass_app
def list_(app: App, as_json: bool) -> None:
    """All users."""
    found = Admin(app.connection()).users()
    look = app.look()

    def added(one: admin_service_pb2.User) -> str:
        return when(from_timestamp(one.create_time), look) if one.HasField("create_time") else ""

    columns: Columns[admin_service_pb2.User] = {
        Cell("USER"): lambda one: one.name,
        Cell("ROLE"): lambda one: one.role,
        Cell("UID", right=True): lambda one: str(one.uid),
        Cell("GID", right=True): lambda one: str(one.gid),
        Cell("GROUPS"): lambda one: ",".join(map(str, one.groups)),
        Cell("ADDED"): added,
    }
    facts = {"users": [user_facts(one) for one in found]}
    tell(facts, lambda: listing(columns, found, look), as_json=as_json)


@user.command(
    name="set",
    epilog=examples(
        "dlq admin user set alice --uid 1000 --gid 1000",
        "dlq admin user set alice --role operator",
    ),
)
@click.option("--role", type=click.Choice(ROLES), help="[default: as it is, else user]")
@click.option("--uid", type=click.IntRange(min=0), help="Numeric user id of their processes.")
@click.option("--gid", type=click.IntRange(min=0), help="Numeric group id.")
@click.option("--groups", metavar="N,N", help="Supplementary groups; empty for none.")
@click.option(
    "--same-person", is_flag=True, help="With another --uid: jobs and history stay theirs."
)
@json_option
@click.argument("name")
@pass_app
def set_(
    app: App,
    name: str,
    role: str | None,
    uid: int | None,
    gid: int | None,
    groups: str | None,
    same_person: bool,
    as_json: bool,
) -> None:
    """Add user NAME, or change it; fields without an option stay.

    A known name with another --uid is a new person, and sees nothing of the old one. Gid and groups
    follow the account on the master's host, if it has one of this name and uid.
    """
    admin = Admin(app.connection())
    before = next((one for one in admin.users() if one.name == name), None)
    if before is None and (uid is None or gid is None):
        raise InvalidRequest(f"{name} is new: name --uid and --gid")
    wanted = admin_service_pb2.User(name=name, role="user")
    if before is not None:
        wanted.CopyFrom(before)
    wanted.role = role or wanted.role
    wanted.uid = wanted.uid if uid is None else uid
    wanted.gid = wanted.gid if gid is None else gid
    if groups is not None:
        del wanted.groups[:]
        wanted.groups.extend(_groups(groups))
    stored = admin.set_user(wanted, same_person=same_person)
    line = f"user {stored.name}: {stored.role}, uid {stored.uid}, gid {stored.gid}"
    tell({"users": [user_facts(stored)]}, lambda: line, as_json=as_json)


@user.command(
    name="del",
    epilog=examples(
        "dlq admin user del alice -y",
        "dlq admin user del alice --cancel-jobs",
        "dlq admin user del alice --give-to bob",
    ),
)
@yes_option
@click.option("--cancel-jobs", is_flag=True, help="Cancel the user's living jobs.")
@click.option(
    "--give-to", metavar="USER", default="", help="Give the jobs that do not run to this user."
)
@click.argument("name")
@pass_app
def del_(app: App, name: str, yes: bool, cancel_jobs: bool, give_to: str) -> None:
    """Remove user NAME: the certificate is refused from now on, and the user's open watches and
    commands in jobs end.

    Refused while jobs of NAME live, unless an option decides about them. With both options, jobs
    that run or are promised a deadline are cancelled. Ended jobs stay in the books, for operators.
    """
    app.confirm(f"{name} loses all access", yes=yes)
    done = Admin(app.connection()).delete_user(name, cancel_jobs=cancel_jobs, give_to=give_to)
    counts = [f"{done.cancelled_count} jobs cancelled"] if done.cancelled_count else []
    counts += [f"{done.given_count} jobs given to {give_to}"] if done.given_count else []
    click.echo("; ".join([f"user {name}: removed", *counts]))


def _groups(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not all(word.isascii() and word.isdigit() and len(word) <= 10 for word in words):
        raise InvalidRequest(f"--groups: {text[:64]!r} is not a list of numbers")
    return [int(word) for word in words]
