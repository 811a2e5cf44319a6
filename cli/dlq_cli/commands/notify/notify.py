"""`dlq notify`: the rules by which `dlq-notify` tells a user what happens to their jobs."""

from __future__ import annotations

import sys
from urllib.parse import urlsplit

import click

from dlq.v1 import notify_service_pb2 as wire
from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.facts.common import Facts, document, instant, tell
from dlq_cli.output.render import Cell, Columns, listing
from dlq_client.notify import NotifyRules
from dlq_common.errors import InvalidRequest
from dlq_common.notices import (
    FOR_OPERATORS,
    LONGEST_ADDRESS,
    MAIL,
    NOTICES,
    TARGETS,
    check_address,
    check_hours,
)
from dlq_common.text.suggest import did_you_mean
from dlq_common.text.units import format_duration, parse_span
from dlq_common.text.wire import from_duration

USUAL = "ended,preempted,promise_at_risk"


@click.group(
    epilog=examples(
        "dlq notify add mail ada@example.org",
        "dlq notify list",
        "dlq notify test n17",
        "dlq notify remove n17",
    )
)
def notify() -> None:
    """Messages to you when something happens to your jobs: by mail, to Slack, Mattermost, Teams, or
    to a program of yours. The daemon dlq-notify sends them, where your cluster runs it.
    """


@notify.command(
    epilog=examples(
        "dlq notify add mail ada@example.org --on failed,preempted",
        "dlq notify add slack - --on promise_at_risk <slack-webhook",
        "dlq notify add webhook https://hooks.example.org/dlq --on started,ended",
        "dlq notify add mail ada@example.org --quiet 22:00-07:00 --zone Europe/Berlin",
    )
)
@click.option(
    "--on",
    "words",
    default=USUAL,
    shell_complete=lambda _ctx, _option, typed: completed(typed),
    metavar="EVENT,...",
    help=f"Of which events: {', '.join(word for word in NOTICES if word not in FOR_OPERATORS)}; "
    f"for operators also {', '.join(FOR_OPERATORS)}.  [default: {USUAL}]",
)
@click.option(
    "--with-output", is_flag=True, help="The last lines of output too, of a job that fails."
)
@click.option("--quiet", "hours", default="", metavar="HH:MM-HH:MM", help="Hours without messages.")
@click.option("--zone", default="", metavar="ZONE", help="Time zone of --quiet.  [default: UTC]")
@click.option(
    "--gather",
    metavar="TIME",
    help="Gather events for so long into one message: 0, 10m, 1h.  [default: as dlq-notify is set]",
)
@json_option
@click.argument("target", type=click.Choice(list(TARGETS)))
@click.argument("address")
@pass_app
def add(
    app: App,
    target: str,
    address: str,
    words: str,
    with_output: bool,
    hours: str,
    zone: str,
    gather: str | None,
    as_json: bool,
) -> None:
    """Send messages to ADDRESS, from now on.

    ADDRESS is a mail address, or the web address that Slack and the like gave you. It is a secret:
    with `-` it is read from stdin, and stays out of the list of processes. Only you and dlq-notify
    can read it again. Calls of a webhook are signed with a key, which this command prints.
    """
    if address == "-":
        address = sys.stdin.readline(LONGEST_ADDRESS + 2).strip()
    events = [word.strip() for word in words.split(",") if word.strip()]
    for word in events:
        if word not in NOTICES:
            raise InvalidRequest(
                f"--on: {word!r} is none of {', '.join(NOTICES)}{did_you_mean(word, NOTICES)}"
            )
    try:
        check_address(target, address)
        if hours:
            check_hours(hours)
        gather_s = None if gather is None else parse_span(gather) if gather != "0" else 0.0
    except ValueError as error:
        raise InvalidRequest(str(error)) from None
    made = NotifyRules(app.connection()).add(
        target,
        address,
        events,
        with_output=with_output,
        quiet_hours=hours,
        time_zone=zone,
        gather_s=gather_s,
    )
    if as_json:
        click.echo(document({"rules": [rule_facts(made)]}))
        return
    click.echo(f"rule {made.rule_id}: {target}, {', '.join(made.events)}")
    if made.signing_key:
        click.echo(f"signing key: {made.signing_key}")
    app.say(f"try it: dlq notify test {made.rule_id}")


@notify.command(name="list", epilog=examples("dlq notify list", "dlq notify list --json"))
@click.option("--all", "all_users", is_flag=True, help="For operators: the rules of all users.")
@json_option
@pass_app
def list_(app: App, all_users: bool, as_json: bool) -> None:
    """Your rules, the oldest first. Of a web address the host is shown; `--json` has the whole."""
    found = NotifyRules(app.connection()).list(all_users=all_users)
    columns: Columns[wire.NotifyRule] = {
        Cell("RULE"): lambda one: one.rule_id,
        **({Cell("USER"): lambda one: one.user} if all_users else {}),
        Cell("TO"): lambda one: one.target,
        Cell("ADDRESS"): _shown_address,
        Cell("QUIET"): lambda one: f"{one.quiet_hours} {one.time_zone}".strip() or "-",
        Cell("GATHER"): _gathered,
        Cell("OUTPUT"): lambda one: "yes" if one.with_output else "-",
        Cell("ON"): lambda one: ",".join(one.events),
    }
    facts = {"rules": [rule_facts(one) for one in found]}
    tell(facts, lambda: listing(columns, found, app.look()), as_json=as_json)
    if not found and not as_json:
        app.say("no rules: dlq notify add mail ADDRESS makes one")


@notify.command(epilog=examples("dlq notify remove n17"))
@click.argument("rule_id", metavar="RULE")
@pass_app
def remove(app: App, rule_id: str) -> None:
    """Remove RULE: messages by it that have not been sent are dropped."""
    NotifyRules(app.connection()).remove(rule_id)
    click.echo(f"rule {rule_id}: removed")


@notify.command(epilog=examples("dlq notify test n17"))
@click.argument("rule_id", metavar="RULE")
@pass_app
def test(app: App, rule_id: str) -> None:
    """Have a message sent by RULE, also in its quiet hours."""
    NotifyRules(app.connection()).test(rule_id)
    click.echo(f"rule {rule_id}: a message is on its way")


def completed(typed: str) -> list[str]:
    """The words that the last one of a list may become, for a press of Tab."""
    before, comma, last = typed.rpartition(",")
    return [f"{before}{comma}{word}" for word in NOTICES if word.startswith(last)]


def rule_facts(one: wire.NotifyRule) -> Facts:
    """A rule as plain values. Address and key are empty where the master does not tell them."""
    return {
        "rule_id": one.rule_id,
        "user": one.user,
        "target": one.target,
        "address": one.address or None,
        "events": list(one.events),
        "create_time": instant(one.create_time),
        "signing_key": one.signing_key or None,
        "with_output": one.with_output,
        "quiet_hours": one.quiet_hours or None,
        "time_zone": one.time_zone or None,
        "gather_seconds": from_duration(one.gather_duration)
        if one.HasField("gather_duration")
        else None,
    }


def _shown_address(one: wire.NotifyRule) -> str:
    if one.target == MAIL or not one.address:
        return one.address or "(hidden)"
    return urlsplit(one.address).netloc


def _gathered(one: wire.NotifyRule) -> str:
    if not one.HasField("gather_duration"):
        return "-"
    return format_duration(from_duration(one.gather_duration))
