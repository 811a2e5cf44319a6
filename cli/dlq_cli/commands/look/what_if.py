"""`dlq what-if`: when waiting jobs would start with other nodes, or under another policy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median

import click

from dlq.v1 import forecast_pb2
from dlq.v1 import forecast_service_pb2 as wire
from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.facts.common import described, document
from dlq_cli.facts.job import range_facts
from dlq_cli.output.render import Cell, OutputLook, age, facts, table
from dlq_cli.text.foreseen import short_range
from dlq_client.forecasts import Forecasts
from dlq_common.errors import InvalidRequest
from dlq_common.text.hostlist import expand_hostlist
from dlq_common.text.wire import from_timestamp

_NODES = re.compile(r"(\d{1,5})x(\d{1,2})(?::(\S{1,64}))?", re.ASCII)
_SHOWN = 10


@click.command(
    "what-if",
    epilog=examples(
        "dlq what-if --add-nodes 4x8",
        "dlq what-if --policy chronus --set be_floor=0.2",
        "dlq what-if --drain gpu07 --drain gpu08 --json",
    ),
)
@click.option(
    "--add-nodes", metavar="NxGPUS[:TYPE]", multiple=True, help="Number of further nodes."
)
@click.option("--drain", metavar="HOST", multiple=True, help="Nodes that take no new work.")
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
    policy: str,
    settings: tuple[str, ...],
    no_header: bool,
    as_json: bool,
) -> None:
    """When waiting jobs would start if things were otherwise. Nothing is changed.

    The present state is simulated twice: unchanged, and with the change; for operators.
    """
    request = wire.CompareForecastsRequest(
        added_nodes=[_added(text) for text in add_nodes],
        closed_node_ids=[name for text in drain for name in _hosts(text)],
        policy=policy,
        policy_settings=dict(_setting(text) for text in settings),
    )
    answer = Forecasts(app.connection()).compare(request)
    if as_json:
        click.echo(document(_facts(answer)))
        return
    look = app.look()
    click.echo(facts(_summary(answer)), nl=False)
    cells = [Cell("JOB_ID", right=True), Cell("START"), Cell("START_THEN")]
    moved = sorted(answer.starts, key=_gain_s)
    rows = [_row(one, look) for one in moved if _gain_s(one)]
    if rows:
        click.echo(table(cells, rows[:_SHOWN], look, headings=not no_header), nl=False)
    if len(rows) > _SHOWN:
        app.say(f"and {len(rows) - _SHOWN} more jobs start at another time: --json shows all")


def _added(text: str) -> wire.AddedNodes:
    found = _NODES.fullmatch(text)
    if not found:
        raise InvalidRequest(
            f"--add-nodes: {text[:64]!r} is no number of nodes",
            field="--add-nodes",
            hint="write 4x8 (nodes x GPUs), or 4x8:h100-80gb",
        )
    return wire.AddedNodes(
        node_count=int(found[1]), gpu_count=int(found[2]), gpu_type=found[3] or ""
    )


def _hosts(text: str) -> Sequence[str]:
    try:
        return expand_hostlist(text)
    except ValueError as error:
        raise InvalidRequest(f"--drain: {error}", field="--drain") from None


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise InvalidRequest(
            f"--set: {text[:64]!r} is not KEY=VALUE", field="--set", hint="such as order=requeue"
        )
    return key, value


_facts = described(
    wire.CompareForecastsResponse,
    "estimate_time! starts",
    starts=described(
        wire.ComparedStart,
        "job_id start other_start",
        start=range_facts,
        other_start=range_facts,
    ),
)


def _summary(answer: wire.CompareForecastsResponse) -> tuple[tuple[str, str], ...]:
    at_s = from_timestamp(answer.estimate_time)
    now = [_likely_s(one.start) for one in answer.starts]
    then = [_likely_s(one.other_start) for one in answer.starts]
    gains = [_gain_s(one) for one in answer.starts]
    return (
        ("jobs that wait", str(len(answer.starts))),
        ("start earlier", str(sum(gain < 0 for gain in gains))),
        ("start later", str(sum(gain > 0 for gain in gains))),
        ("wait, median", f"{_median(now, at_s)} now, {_median(then, at_s)} then" if now else ""),
    )


def _median(starts_s: list[float], at_s: float) -> str:
    middle_s = median(starts_s)
    return "longer than foreseen" if middle_s == _NEVER_S else age(middle_s - at_s)


_NEVER_S = float("inf")


def _likely_s(range_: forecast_pb2.TimeRange) -> float:
    return from_timestamp(range_.likely_time) if range_.HasField("likely_time") else _NEVER_S


def _gain_s(one: wire.ComparedStart) -> float:
    """Below 0: it starts earlier by this time."""
    now_s, then_s = _likely_s(one.start), _likely_s(one.other_start)
    return 0.0 if now_s == then_s else then_s - now_s


def _row(one: wire.ComparedStart, look: OutputLook) -> list[str]:
    now = short_range(one.start, look) if one.HasField("start") else "never"
    then = short_range(one.other_start, look) if one.HasField("other_start") else "never"
    return [one.job_id, now, then]
