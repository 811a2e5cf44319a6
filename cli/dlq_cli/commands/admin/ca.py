"""`dlq admin ca`: another CA signs, while jobs, agents and services go on."""

from __future__ import annotations

from collections.abc import Iterator

import click

from dlq.v1.admin_service_pb2 import AuthorityFacts
from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app, yes_option
from dlq_cli.facts.cluster import authority_facts
from dlq_cli.facts.common import tell
from dlq_cli.output.render import when
from dlq_client.admin import Admin
from dlq_common.text.hostlist import compress_hostlist
from dlq_common.text.wire import from_timestamp

_STATES = {
    "former": "still use the former CA",
    "unseen": "were not seen yet",
    "follows": "follow",
}


@click.group(epilog=examples("dlq admin ca rotate", "dlq admin ca status", "dlq admin ca finish"))
def ca() -> None:
    """Change the CA of the cluster without stopping anything.

    After `rotate` both CAs count, and everybody renews by themselves. `status` says who has done
    so. `finish` ends the former CA. `dlq-master ca --help` tells of a root that lies offline.
    """


@ca.command(epilog=examples("dlq admin ca rotate"))
@yes_option
@json_option
@pass_app
def rotate(app: App, yes: bool, as_json: bool) -> None:
    """Let another CA sign from now on: the imported one, or a new root."""
    app.confirm("all members of the cluster get new certificates", yes=yes)
    _tell(app, Admin(app.connection()).rotate_authority(), as_json)


@ca.command(epilog=examples("dlq admin ca status"))
@json_option
@pass_app
def status(app: App, as_json: bool) -> None:
    """The CA that counts, and during a change who follows it."""
    _tell(app, Admin(app.connection()).authority(), as_json)


@ca.command(epilog=examples("dlq admin ca finish", "dlq admin ca finish --force -y"))
@yes_option
@click.option("--force", is_flag=True, help="Also while somebody still uses the former one.")
@json_option
@pass_app
def finish(app: App, yes: bool, force: bool, as_json: bool) -> None:
    """End the former CA. It is refused, with names, while somebody still uses it.

    Users who have not come meanwhile log in anew. With --force, so do the named ones, and named
    nodes join anew; their jobs go on.
    """
    app.confirm("the former CA, and all that it signed, becomes worthless", yes=yes)
    _tell(app, Admin(app.connection()).finish_authority(force=force), as_json)


def _tell(app: App, told: AuthorityFacts, as_json: bool) -> None:
    tell({"authority": authority_facts(told)}, lambda: _words(app, told), as_json=as_json)


def _words(app: App, told: AuthorityFacts) -> str:
    return "\n".join(_lines(app, told))


def _lines(app: App, told: AuthorityFacts) -> Iterator[str]:
    yield f"root  {told.fingerprint}"
    if told.next_fingerprint:
        yield f"next  {told.next_fingerprint}"
    yield f"good  {when(from_timestamp(told.expire_time), app.look())}"
    if not told.changing:
        return
    yield "a change is on its way: both count until `dlq admin ca finish`"
    for state, words in _STATES.items():
        for kind in ("node", "user"):
            names = [one.name for one in told.members if (one.state, one.kind) == (state, kind)]
            if names:
                listed = compress_hostlist(names) if kind == "node" else ",".join(names)
                yield f"{kind}s that {words}: {listed}"
