"""`dlq admin audit`: the changes that people, nodes and services made, and what was denied."""

from __future__ import annotations

from collections.abc import Sequence

import click
from google.protobuf.timestamp_pb2 import Timestamp

from dlq.v1 import admin_service_pb2 as wire
from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.facts.cluster import audit_facts
from dlq_cli.facts.common import instant, tell
from dlq_cli.lists.since import past_instant
from dlq_cli.output.render import Cell, Columns, OutputLook, listing, when
from dlq_client.admin import Admin
from dlq_common.text.wire import from_timestamp, to_timestamp

USUAL_LINES, MOST_AT_ONCE = 50, 1_000
TIMES = "write 2h, 7d, 08:00, 2026-12-01T08:00, today or yesterday"


@click.command(
    epilog=examples(
        "dlq admin audit",
        "dlq admin audit --since today --user alice",
        "dlq admin audit --method SetUser --decision PERMISSION_DENIED",
        "dlq admin audit --object 4711 -n 1000",
    )
)
@click.option("-S", "--since", metavar="TIME", help="Only lines since: 2h ago, 08:00, a date.")
@click.option("--until", metavar="TIME", help="Only lines before this time.")
@click.option("-u", "--user", default="", help="Only calls of this user, node or service.")
@click.option("--method", default="", metavar="PART", help="Only methods with this in their name.")
@click.option("--object", "about", default="", help="Only calls about this job, node or user.")
@click.option("--decision", default="", metavar="WORD", help="Such as OK or PERMISSION_DENIED.")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=USUAL_LINES, show_default=True,
    help="How many lines at most.",
)  # fmt: skip
@json_option
@click.argument("words", nargs=-1)
@pass_app
def audit(
    app: App,
    since: str | None,
    until: str | None,
    user: str,
    method: str,
    about: str,
    decision: str,
    limit: int,
    as_json: bool,
    words: tuple[str, ...],
) -> None:
    """Lines of the audit that have all WORDS, the newest first: calls that changed something or
    were denied.

    Lines that were moved to an archive are not found.
    """
    asked = wire.ListAuditLinesRequest(
        from_time=_instant(app, since, "--since"), until_time=_instant(app, until, "--until"),
        user=user, method=method, object=about, decision=decision, text=" ".join(words),
    )  # fmt: skip
    lines, more, looked_from = _found(Admin(app.connection()), asked, limit)
    facts = {
        "lines": [audit_facts(line) for line in lines],
        "more": more,
        "looked_from_time": instant(looked_from) if looked_from is not None else None,
    }
    look = app.look()
    tell(facts, lambda: listing(columns(look), lines, look), as_json=as_json)
    if as_json:
        return
    if not lines:
        app.say("there are no such lines")
    elif more:
        app.say("there are older lines; -n shows more of them")


def columns(look: OutputLook) -> Columns[wire.AuditLine]:
    """A line for people."""
    return {
        Cell("TIME"): lambda line: when(from_timestamp(line.call_time), look),
        Cell("WHO"): lambda line: f"{line.user} by {line.by}" if line.by else line.user,
        Cell("ROLE"): lambda line: line.role,
        Cell("METHOD"): lambda line: line.method.rpartition("/")[2],
        Cell("OBJECT"): lambda line: line.object,
        Cell("DECISION"): lambda line: line.decision,
        Cell("FROM"): lambda line: line.peer,
    }


def _instant(app: App, text: str | None, flag: str) -> Timestamp | None:
    if text is None:
        return None
    return to_timestamp(past_instant(text, app.clock.now_s(), flag, TIMES))


def _found(
    admin: Admin, asked: wire.ListAuditLinesRequest, limit: int
) -> tuple[Sequence[wire.AuditLine], bool, Timestamp | None]:
    """At most so many lines, whether others follow, and since when all were looked at."""
    lines: list[wire.AuditLine] = []
    looked_from: Timestamp | None = None
    while True:
        asked.page_size = min(limit - len(lines), MOST_AT_ONCE)
        page = admin.audit_lines(asked)
        lines += page.lines
        looked_from = page.looked_from_time if page.HasField("looked_from_time") else looked_from
        asked.page_token = page.next_page_token
        if len(lines) >= limit or not page.next_page_token:
            return lines, bool(page.next_page_token), looked_from
