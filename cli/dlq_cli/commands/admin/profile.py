"""`dlq admin profile`: the functions on which the master spends its time, and its slow turns.
With `--node` those of a node's agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import click

from dlq.v1 import master_profile_pb2 as wire
from dlq_cli.app import App
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.facts.common import tell
from dlq_cli.facts.master_profile import (
    FunctionShare,
    busy,
    folded,
    profile_facts,
    shares,
    speedscope,
)
from dlq_cli.output.progress import ProgressBar
from dlq_cli.output.render import Cell, OutputLook, clean_line, listing, when
from dlq_cli.output.written import write_new
from dlq_client.admin import Admin
from dlq_common.errors import InvalidRequest
from dlq_common.text.wire import from_duration, from_timestamp

_OF_OTHERS = 3  # functions of a thread that is not the loop
_SLOW_SHOWN = 5
_LEAST = 0.0005  # a smaller own share is no line of the table
_MS = 1000.0


@click.command(
    epilog=examples(
        "dlq admin profile",
        "dlq admin profile --seconds 120 --top 40",
        "dlq admin profile -o master.folded && flamegraph.pl master.folded > master.svg",
        "dlq admin profile -o master.speedscope.json    # open it at speedscope.app",
        "dlq admin profile --json | jq '.slow_turns'",
        "dlq admin profile --node n7",
    )
)
@click.option(
    "-t",
    "--seconds",
    type=click.FloatRange(1, 300),
    default=30,
    show_default=True,
    help="How long samples are taken.",
)
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the stacks to this file: folded, or for speedscope if its name ends with .json.",
)
@click.option("--node", "node_id", metavar="NODE", help="The agent of this node, not the master.")
@click.option("-f", "--force", is_flag=True, help="Write over an existing file.")
@click.option(
    "--top",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    help="Functions of the loop that are shown.",
)
@click.option(
    "--sort",
    "order",
    type=click.Choice(["self", "total"]),
    default="self",
    show_default=True,
    help="By a function's own time, or with the functions that it called.",
)
@json_option
@pass_app
def profile(
    app: App,
    seconds: float,
    target: Path | None,
    node_id: str | None,
    force: bool,
    top: int,
    order: str,
    as_json: bool,
) -> None:
    """On what the master spends its time: sampled stacks of its threads, and its slow turns.

    With --node it is the agent of that node, which has no turns. The master, or the agent, goes on
    serving; the last line says what sampling cost it. Only functions, files and lines are told,
    never values. One profile of each is taken at a time; another one is refused with exit code 75.
    """
    if target is not None and target.exists() and not force:
        raise InvalidRequest(f"{target}: it is there already", hint="--force writes over it")
    began_s = app.clock.boottime_s()
    with ProgressBar(f"sampling {node_id or 'the master'}", seconds) as bar:
        found = _taken(app, node_id, seconds, lambda _: bar.at(app.clock.boottime_s() - began_s))
    if target is not None:
        name = node_id or "dlq-master"
        text = speedscope(found, name) if target.suffix == ".json" else folded(found)
        write_new(target, text, force=force)
        app.say(f"{sum(one.sample_count for one in found.stacks)} samples are in {target}")
    tell(
        profile_facts(found),
        lambda: profile_text(found, app.look(), top, by_total=order == "total"),
        as_json=as_json,
    )


def _taken(
    app: App, node_id: str | None, seconds: float, heard: Callable[[int], object]
) -> wire.MasterProfile:
    admin = Admin(app.connection())
    if node_id is None:
        return admin.profile(seconds, heard)
    return admin.node_profile(node_id, seconds, heard)


def profile_text(found: wire.MasterProfile, look: OutputLook, top: int, *, by_total: bool) -> str:
    """Threads with their functions, turns by their length, slow turns, and the cost of it all."""
    indexes = range(len(found.threads))
    parts = [_thread(found, index, look, top, by_total=by_total) for index in indexes]
    return "\n".join(filter(None, (*parts, _turns(found, look), _slow(found, look), _cost(found))))


def _thread(
    found: wire.MasterProfile, index: int, look: OutputLook, top: int, *, by_total: bool
) -> str:
    thread, first = found.threads[index], index == 0
    cpu_s = from_duration(thread.cpu_duration)
    shown = [one for one in shares(found, index) if first or one.own >= _LEAST]
    if not first and not shown and cpu_s < _LEAST * from_duration(found.took_duration):
        return ""
    head = f"{clean_line(thread.name)}: {cpu_s:.2f} s of CPU time"
    if first and thread.sample_count:
        head += f", {busy(thread):.0%} of the time at work"
    if by_total:
        shown.sort(key=lambda one: -one.total)
    shown = shown[: top if first else _OF_OTHERS]
    return f"{head}\n{listing(_FUNCTIONS, shown, look) if shown else ''}"


_FUNCTIONS: dict[Cell, Callable[[FunctionShare], str]] = {
    Cell("SELF", right=True): lambda one: f"{one.own:.1%}",
    Cell("TOTAL", right=True): lambda one: f"{one.total:.1%}",
    Cell("FUNCTION", least=20): lambda one: one.function.name,
    Cell("FILE", least=20): lambda one: one.place,
}


def _turns(found: wire.MasterProfile, look: OutputLook) -> str:
    total = sum(one.turn_count for one in found.turns)
    if not found.turns:
        return ""  # an agent has none
    if not total:
        return "no turn of the loop ended meanwhile\n"
    columns: dict[Cell, Callable[[wire.TurnBucket], str]] = {
        Cell("TURNS", right=True): lambda one: str(one.turn_count),
        Cell("SHARE", right=True): lambda one: f"{one.turn_count / total:.1%}",
        Cell("UP TO", right=True): _up_to,
    }
    return f"{total} turns of the loop\n" + listing(
        columns, [one for one in found.turns if one.turn_count], look
    )


def _up_to(bucket: wire.TurnBucket) -> str:
    if not bucket.HasField("longest_duration"):
        return "longer"
    return f"{from_duration(bucket.longest_duration) * _MS:g} ms"


def _slow(found: wire.MasterProfile, look: OutputLook) -> str:
    bound = f"{from_duration(found.slow_duration) * _MS:g} ms"
    if not found.slow_count:
        return ""
    head = f"{found.slow_count} turns since the start were longer than {bound}; the last ones:\n"
    columns: dict[Cell, Callable[[wire.SlowTurn], str]] = {
        Cell("BEGAN"): lambda one: when(from_timestamp(one.begin_time), look),
        Cell("DECIDE", right=True): lambda one: _ms(from_duration(one.decide_duration)),
        Cell("PLAN", right=True): lambda one: _ms(from_duration(one.plan_duration)),
        Cell("PERSIST", right=True): lambda one: _ms(from_duration(one.persist_duration)),
        Cell("PUBLISH", right=True): lambda one: _ms(from_duration(one.publish_duration)),
        Cell("JOBS", right=True): lambda one: str(one.job_count),
        Cell("NODES", right=True): lambda one: str(one.node_count),
        Cell("STIMULI", least=12): lambda one: ", ".join(_stimuli(one)),
    }
    return head + listing(columns, list(found.slow_turns)[-_SLOW_SHOWN:], look)


def _stimuli(slow: wire.SlowTurn) -> Iterator[str]:
    for kind, count in sorted(slow.stimuli.items(), key=lambda one: (-one[1], one[0])):
        yield f"{count} {kind}"


def _ms(seconds: float) -> str:
    return f"{seconds * _MS:.1f} ms"


def _cost(found: wire.MasterProfile) -> str:
    took_s = from_duration(found.took_duration)
    share = from_duration(found.overhead_duration) / took_s if took_s else 0.0
    cost = f"sampling took {share:.2%} of a core"
    missed = f", {found.missed_count} missed" if found.missed_count else ""
    left_out = f", {found.left_out_count} left out" if found.left_out_count else ""
    early = f"; it ended early: {clean_line(found.ended_early)}" if found.ended_early else ""
    counted = f"{found.sample_count} samples{missed}{left_out} in {took_s:.1f} s"
    return f"{counted}, {from_duration(found.cpu_duration):.2f} s of CPU time; {cost}{early}\n"
