"""`dlq admin leader` shows the parts of the masters, and hands the lead over."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import click

from dlq.v1.admin_service_pb2 import MasterPart
from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app, yes_option
from dlq_cli.facts.cluster import master_facts
from dlq_cli.facts.common import Facts, seconds, tell
from dlq_cli.output.render import Cell, Columns, OutputLook, listing, when
from dlq_client.admin import LEADING, Admin, Parts, leader_of, parts_of
from dlq_common.errors import Unavailable
from dlq_common.text.wire import from_timestamp

LOOK_S = 0.1
_WORDS = {"leads": "leads", "stands_by": "stands by", "alone": "leads alone"}


@click.group(epilog=examples("dlq admin leader show", "dlq admin leader step-down"))
def leader() -> None:
    """Show the parts of the masters, or hand the lead over."""


@leader.command(epilog=examples("dlq admin leader show", "dlq admin leader show --json"))
@json_option
@pass_app
def show(app: App, as_json: bool) -> None:
    """Show every master and its part. Each one is asked alone, so one that is down shows too."""
    parts = parts_of(app.connection().identity)
    if not any(isinstance(part, MasterPart) for part in parts.values()):
        raise Unavailable(f"no master answers: {'; '.join(map(str, parts.values()))}")
    tell(_facts(parts), lambda: _words(parts, app.look()), as_json=as_json)


@leader.command(name="step-down", epilog=examples("dlq admin leader step-down"))
@click.option("--force", is_flag=True, help="Also when no standby is ready.")
@yes_option
@json_option
@pass_app
def step_down(app: App, force: bool, yes: bool, as_json: bool) -> None:
    """Hand the lead over to a standby, and wait until it leads. Jobs go on.

    It is refused when no standby has read all turns. With --force nobody may lead for a while.
    """
    if force:
        app.confirm("the master leads no more, and perhaps nobody does for a while", yes=yes)
    connection = app.connection()
    epoch = Admin(connection).step_down(force=force)
    began_s = time.monotonic()
    parts, patience_s = parts_of(connection.identity), app.settings.number("patience_s")
    while (found := leader_of(parts, after=epoch)) is None:
        if time.monotonic() - began_s > patience_s:
            raise Unavailable(f"epoch {epoch} has ended, and no other master leads yet")
        time.sleep(LOOK_S)
        parts = parts_of(connection.identity)
    words = f"{found.address} leads with epoch {found.epoch}; epoch {epoch} has ended"
    tell({"ended_epoch": epoch, **_facts(parts)}, lambda: words, as_json=as_json)


def _facts(parts: Parts) -> Facts:
    nothing: Mapping[str, object] = dict.fromkeys(master_facts(MasterPart()))
    found = leader_of(parts)
    return {
        "leader": None if found is None else found.address,
        "masters": [
            {**master_facts(part), "address": address, "error": None}
            if isinstance(part, MasterPart)
            else {**nothing, "address": address, "error": str(part)}
            for address, part in parts.items()
        ],
    }


def _words(parts: Parts, look: OutputLook) -> str:
    return "\n".join(_lines(parts, look)) + "\n"


def _lines(parts: Parts, look: OutputLook) -> Iterator[str]:
    found = leader_of(parts)
    told = [part for part in parts.values() if isinstance(part, MasterPart)]
    turn = max(part.turn for part in told)
    yield listing(_columns(look, turn), told, look).rstrip("\n")
    for address, part in parts.items():
        if not isinstance(part, MasterPart):
            yield f"{address} does not answer: {part}"
        elif part.reason:
            yield f"{address} would not lead: {part.reason}"
    if found is None:
        yield "nobody leads"
    elif found.system:
        yield f"database {found.system}, timeline {found.timeline}"


def _columns(look: OutputLook, turn: int) -> Columns[MasterPart]:
    return {
        Cell("MASTER"): lambda one: one.address,
        Cell("PART"): lambda one: _WORDS.get(one.part, one.part),
        Cell("SINCE"): lambda one: _since(one, look),
        Cell("EPOCH"): lambda one: str(one.epoch),
        Cell("LEASE"): lambda one: (
            f"{seconds(one.lease_left_duration):.1f} s" if one.part == LEADING[0] else "-"
        ),
        Cell("TURN"): lambda one: str(one.turn or "-"),
        Cell("BEHIND"): lambda one: _behind(one, turn),
    }


def _since(part: MasterPart, look: OutputLook) -> str:
    return when(from_timestamp(part.since_time), look) if part.HasField("since_time") else "-"


def _behind(part: MasterPart, turn: int) -> str:
    """Of a standby: the turns that it has not read, and the age of its last look."""
    if part.part in LEADING:
        return "-"
    if not part.HasField("read_ago_duration"):
        return "has read nothing"
    return f"{turn - part.turn} turns, read {seconds(part.read_ago_duration):.1f} s ago"
