"""`dlq what-if`: when jobs would start with other nodes or jobs, or under another policy."""

from __future__ import annotations

import click

from dlq.v1 import forecast_service_pb2 as wire
from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.facts.common import described, document
from dlq_cli.facts.job import range_facts
from dlq_cli.output.render import facts, table
from dlq_cli.text.compared import MOVED, OtherWorld, moved_rows, question, summary
from dlq_client.forecasts import Forecasts

_SHOWN = 10


@click.command(
    "what-if",
    epilog=examples(
        "dlq what-if --add-nodes 4x8",
        "dlq what-if --policy chronus --set be_floor=0.2",
        "dlq what-if --drain gpu07 --drain gpu08 --json",
        "dlq what-if --lose gpu[01-02] --add-job 16:3h:8h   # and a job with a deadline",
    ),
)
@click.option(
    "--add-nodes", metavar="NxGPUS[:TYPE]", multiple=True, help="Number of further nodes."
)
@click.option("--drain", metavar="HOST", multiple=True, help="Nodes that take no new work.")
@click.option("--lose", metavar="HOST", multiple=True, help="Nodes that die, with their jobs.")
@click.option(
    "--add-job", metavar="GPUS:TIME[:DEADLINE]", multiple=True, help="A further job, such as 8:3h."
)
@click.option("--policy", metavar="NAME", default="", help="Simulate another policy.")
@click.option(
    "--set", "settings", metavar="KEY=VALUE", multiple=True, help="A setting of that policy."
)
@click.option("--no-header", is_flag=True, help="No headings.")
@json_option
@pass_app
def what_if(
    app: App,
    add_nodes: tuple[str, ...],
    drain: tuple[str, ...],
    lose: tuple[str, ...],
    add_job: tuple[str, ...],
    policy: str,
    settings: tuple[str, ...],
    no_header: bool,
    as_json: bool,
) -> None:
    """When waiting jobs would start if things were otherwise. Nothing is changed.

    The present state is simulated twice: unchanged, and with the change; for operators.
    """
    asked = OtherWorld(add_nodes, drain, lose, add_job, policy, settings)
    answer = Forecasts(app.connection()).compare(question(asked))
    if as_json:
        click.echo(document(_facts(answer)))
        return
    look = app.look()
    click.echo(facts(summary(answer)), nl=False)
    rows = moved_rows(answer, look)
    if rows:
        click.echo(table(MOVED, rows[:_SHOWN], look, headings=not no_header), nl=False)
    if len(rows) > _SHOWN:
        app.say(f"and {len(rows) - _SHOWN} more jobs start at another time: --json shows all")


_facts = described(
    wire.CompareForecastsResponse,
    "estimate_time! starts",
    starts=described(
        wire.ComparedStart,
        "job_id start other_start end other_end due_time running",
        start=range_facts,
        other_start=range_facts,
        end=range_facts,
        other_end=range_facts,
    ),
)
