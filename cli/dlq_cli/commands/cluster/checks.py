"""`dlq admin check`: measure nodes now, and see what checks have found."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

import click

from dlq.v1.event_pb2 import Event, EventFilter
from dlq_cli import exit_codes
from dlq_cli.app import App
from dlq_cli.commands.cluster.nodes import names_of
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.facts.common import Facts, instant, tell
from dlq_cli.lists.since import past_instant
from dlq_cli.output.render import Cell, Columns, OutputLook, listing, when
from dlq_cli.words import has_ended
from dlq_client.admin import Admin
from dlq_client.jobs import Jobs
from dlq_client.nodes import Nodes
from dlq_common.errors import Conflict, DlqError, InvalidRequest
from dlq_common.text.wire import from_timestamp, to_timestamp

PAIR = "all_reduce"
ALONE = ("memory", "matrix", "disk")  # that need no configuration
LOOK_S = 0.2
TIMES = "write 2h, 7d, 08:00, 2026-12-01T08:00, today or yesterday"


@click.group()
def check() -> None:
    """Measure nodes by short jobs of the master. A node that fails is quarantined."""


@check.command(
    epilog=examples(
        "dlq admin check run gpu07",
        "dlq admin check run gpu[01-04] --kind disk",
        "dlq admin check run gpu[01-04] --kind all_reduce",
    )
)
@click.option(
    "-k",
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="memory, matrix, disk, checkpoints, clock, pull, or all_reduce of each pair of the nodes."
    "  [default: memory, matrix, disk]",
)
@json_option
@click.argument("node_id", nargs=-1, required=True, metavar="NODE...")
@pass_app
def run(app: App, node_id: tuple[str, ...], kinds: tuple[str, ...], as_json: bool) -> None:
    """Check NODE... now, one after the other, and print the results.

    A check takes a whole idle node. A busy one is left out, and a line says so. A node that is
    quarantined or cordoned is checked too. The exit code is 1 when a node has failed, and 75 when
    all were busy.
    """
    names, admin, jobs = names_of(node_id), Admin(app.connection()), Jobs(app.connection())
    if PAIR in kinds and len(names) < 2:
        raise InvalidRequest(f"{PAIR} is of two nodes: name at least two")
    found: list[Event] = []
    for kind in kinds or ALONE:
        for group in combinations(names, 2) if kind == PAIR else zip(names, strict=True):
            try:
                job_id = admin.check_nodes(kind, group)
            except Conflict as busy:
                app.say(f"{kind} of {' and '.join(group)}: not made: {busy.what}")
                continue
            found += _results(jobs, job_id)
    _tell(app, found, as_json=as_json)
    if any(event.data["result"] == "failed" for event in found):
        raise exit_codes.Ended(exit_codes.FAILURE)
    if not found:
        raise exit_codes.Ended(exit_codes.TRY_AGAIN)


@check.command(
    epilog=examples(
        "dlq admin check history",
        "dlq admin check history gpu07 --since 7d",
    )
)
@click.option("-S", "--since", metavar="TIME", help="Only results since: 2h ago, 08:00, a date.")
@json_option
@click.argument("node_id", nargs=-1, metavar="[NODE]...")
@pass_app
def history(app: App, node_id: tuple[str, ...], since: str | None, as_json: bool) -> None:
    """Results of checks of NODE..., or of all nodes, the oldest first."""
    names = names_of(node_id) if node_id else []
    chosen = EventFilter(kinds=["node_checked"], node_ids=names)
    if since is not None:
        from_s = past_instant(since, app.clock.now_s(), "--since", TIMES)
        chosen.since_time.CopyFrom(to_timestamp(from_s))
    found = list(Jobs(app.connection()).events(chosen=chosen))
    for name in () if found else names:
        Nodes(app.connection()).get(name)  # NotFound for a slip
    _tell(app, found, as_json=as_json)


# --- helpers, in order of use ---------------------------------------------------------------------


def _results(jobs: Jobs, job_id: str) -> Iterator[Event]:
    """Wait until the check is over; its results, one for each node."""
    while not has_ended(jobs.get(job_id).job):
        time.sleep(LOOK_S)
    chosen = EventFilter(kinds=["node_checked"])
    found = list(jobs.events(job_id, chosen=chosen))
    if not found:
        raise DlqError(f"check {job_id} has no result", hint=f"see: dlq events {job_id}")
    yield from found


def _tell(app: App, found: Sequence[Event], *, as_json: bool) -> None:
    look = app.look()
    facts = {"checks": [_facts(event) for event in found]}
    tell(facts, lambda: _text(found, look), as_json=as_json)


def _facts(event: Event) -> Facts:
    data = event.data
    return {
        "time": instant(event.event_time),
        "node_id": event.node_id,
        "check": data["check"],
        "result": data["result"],
        "figure": float(data["figure"]) if "figure" in data else None,
        "unit": data["unit"] or None,
        "limit": float(data["limit"]) if "limit" in data else None,
        "on": data["on"] or None,
        "job_id": event.job_id,
        "words": event.cause,
    }


def _text(found: Iterable[Event], look: OutputLook) -> str:
    return listing(_columns(look), found, look) if found else "no node was checked\n"


def _columns(look: OutputLook) -> Columns[Event]:
    return {
        Cell("TIME"): lambda one: when(from_timestamp(one.event_time), look),
        Cell("NODE"): lambda one: one.node_id,
        Cell("CHECK"): lambda one: one.data["check"],
        Cell("RESULT"): lambda one: one.data["result"],
        Cell("FIGURE"): lambda one: _number(one, "figure"),
        Cell("LIMIT"): lambda one: _number(one, "limit"),
        Cell("BY"): lambda one: one.data["on"] or "-",
        Cell("JOB"): lambda one: one.job_id,
        Cell("WHY"): lambda one: one.cause.partition(": ")[2],
    }


def _number(event: Event, name: str) -> str:
    return f"{float(event.data[name]):g} {event.data['unit']}" if name in event.data else "-"
