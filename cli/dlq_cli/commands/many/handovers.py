"""`dlq handovers`: jobs that `dlq submit --to` has handed to a cluster, and open ones."""

from __future__ import annotations

import click

from dlq_cli.app import App
from dlq_cli.clusters.listed import Clusters
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.facts.common import document
from dlq_cli.output.render import Cell, clean_line, table, when
from dlq_cli.quiet import quiet_grpc
from dlq_common.errors import InvalidRequest

CELLS = (
    Cell("STATE"), Cell("JOB"), Cell("NAME", least=8), Cell("MADE", drop=1),
    Cell("HANDOVER", drop=2), Cell("LAST", least=12),
)  # fmt: skip


@click.command(
    epilog=examples("dlq handovers", "dlq handovers --settle", "dlq handovers --give-up NUMBER")
)
@click.option("--settle", "settles", is_flag=True, help="Go on with the open ones.")
@click.option(
    "--give-up",
    "number",
    metavar="NUMBER",
    help="End an open one: the cluster that may have the job says whether it has it.",
)
@click.option("--no-header", is_flag=True, help="No headings.")
@json_option
@pass_app
def handovers(app: App, settles: bool, number: str | None, no_header: bool, as_json: bool) -> None:
    """Hand-overs of the last week, and all that are open.

    One is open when `dlq` ended before a cluster had answered. That cluster may have the job, so no
    other gets it. `--settle` asks it again under the same key: there is one job in the end. A job
    that was to move stays open, too, while its own cluster does not take it back.
    """
    if settles and number:
        raise InvalidRequest("--settle goes on, and --give-up ends: say one")
    clusters = Clusters(app)
    hands = clusters.records.all()
    with quiet_grpc():
        from dlq_cli.clusters.going import failure_of, give_up, refuse, settle
        from dlq_cli.clusters.shown import handover_facts
    if settles or number:
        if number:
            hands = [give_up(app, clusters, number)]
        else:
            hands = settle(app, clusters, [hand for hand in hands if hand.is_open])
    if as_json:
        click.echo(document({"handovers": [handover_facts(hand) for hand in hands]}))
    else:
        look = app.look()
        rows = [
            [
                hand.state.value,
                hand.global_name or (f"{hand.cluster}:?" if hand.in_doubt else ""),
                clean_line(hand.name),
                when(hand.made_s, look),
                hand.number,
                clean_line(hand.story[-1]) if hand.story else "",
            ]
            for hand in hands
        ]
        shown = table(CELLS, rows, look, headings=not no_header and bool(rows))
        click.echo(shown, nl=False)
        if not hands:
            app.say("no hand-over is open" if settles else "there are no hand-overs")
    for hand in hands if settles or number else ():
        failure = failure_of(app, clusters, hand) if hand.is_open else None
        if failure is not None:
            refuse(app, failure, told=as_json)
