"""`dlq gpus`: every GPU, its job and its health."""

from __future__ import annotations

from collections.abc import Iterable

import click

from dlq.v1 import node_pb2
from dlq_cli.app import App
from dlq_cli.commands.cluster.nodes import chosen_nodes
from dlq_cli.commands.options import examples, json_option, pass_app
from dlq_cli.facts.common import document
from dlq_cli.facts.gpus import Row, gpu_facts, rows_of
from dlq_cli.output.render import Cell, OutputLook, table
from dlq_client.nodes import Nodes
from dlq_common.text.units import approximate_size

STATES = ("free", "busy", "withheld", "closed", "unknown")


@click.command(
    epilog=examples(
        "dlq gpus",
        "dlq gpus gpu07",
        "dlq gpus -t withheld",
        "dlq gpus --unhealthy",
        "dlq gpus --json",
    )
)
@click.option(
    "-t",
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES),
    help="Only GPUs in this state; may be repeated.",
)
@click.option("--unhealthy", is_flag=True, help="Only GPUs with a known fault.")
@click.option("--no-header", is_flag=True, help="No headings.")
@json_option
@click.argument("node", nargs=-1)
@pass_app
def gpus(
    app: App,
    node: tuple[str, ...],
    states: tuple[str, ...],
    unhealthy: bool,
    no_header: bool,
    as_json: bool,
) -> None:
    """One line for each GPU: its job, its health, its last measurements.

    free: takes work; busy: has a job; withheld: takes none, though its node does; closed: its node
    takes none (dlq nodes -R says why).
    """
    found = [
        row
        for row in rows_of(chosen_nodes(Nodes(app.connection()), node))
        if (not states or row.status.state in states) and (not unhealthy or row.status.conditions)
    ]
    if as_json:
        click.echo(document({"gpus": [gpu_facts(row) for row in found]}))
        return
    look = app.look()
    click.echo(_list(found, look, headings=not no_header), nl=False, color=look.color)


def _known(status: node_pb2.GpuStatus, name: str) -> int | None:
    return int(getattr(status, name)) if status.HasField(name) else None  # type: ignore[arg-type] # one of the three


GPU_CELLS = (
    Cell("NODE"),
    Cell("GPU", right=True),
    Cell("TYPE"),
    Cell("MEMORY", right=True),
    Cell("STATE", state=True),
    Cell("JOB"),
    Cell("USED", right=True),
    Cell("UTIL", right=True),
    Cell("TEMP", right=True),
    Cell("HEALTH", most=40),
)


def _list(found: Iterable[Row], look: OutputLook, *, headings: bool) -> str:
    return table(GPU_CELLS, (gpu_row(row) for row in found), look, headings=headings)


def gpu_row(row: Row) -> list[str]:
    """The texts below `GPU_CELLS`."""
    node, gpu, status = row
    temperature = _known(status, "temperature_celsius")
    busy = _known(status, "utilization_percent")
    used = _known(status, "used_memory_bytes")
    return [
        node.node_id,
        str(gpu.index),
        gpu.gpu_type + (" (virtual)" if node.virtual_devices else ""),
        approximate_size(gpu.memory_bytes) if gpu.memory_bytes else "",
        status.state,
        status.attempt,
        "" if used is None else approximate_size(used),
        "" if busy is None else f"{busy}%",
        "" if temperature is None else f"{temperature}C",
        _health(status),
    ]


def _health(status: node_pb2.GpuStatus) -> str:
    if status.state == "unknown":
        return ""
    return ", ".join(f"{one.code} ({one.action})" for one in status.conditions) or "ok"
