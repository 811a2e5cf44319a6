"""Tables of usage and of costs, per job and per machine, and the same as lines for programs."""

from __future__ import annotations

from dlq.v1 import usage_service_pb2 as wire
from dlq_cli.facts.usage import COST_GROUPS, cost_facts, pool_cost_facts, pool_facts, usage_facts
from dlq_cli.output.render import OutputLook, absolute
from dlq_cli.output.rows import rows_csv, rows_text
from dlq_common.text.wire import from_timestamp

_NORMALISED = "normalised_gpu_hours"
_IDLE = "held_idle_gpu_hours"


def cost_text(answer: wire.GetCostsResponse, by: tuple[str, ...], look: OutputLook) -> str:
    """Both tables, and from when to when."""
    begin, end = (
        absolute(from_timestamp(at), look) for at in (answer.from_time, answer.until_time)
    )
    text = f"{begin} to {end}, in the currency of prices\n"
    text += rows_text([cost_facts(one, by) for one in answer.costs], (*COST_GROUPS, "name"), look)
    if answer.pools:
        pools = [pool_cost_facts(one, by) for one in answer.pools]
        text += "\n" + rows_text(pools, ("day", "pool"), look)
    return text


def cost_csv(answer: wire.GetCostsResponse, by: tuple[str, ...]) -> str:
    """The groups, one a line; the pools are another table, and not in it."""
    names = list(cost_facts(wire.Cost(), by))
    return rows_csv([cost_facts(one, by) for one in answer.costs], names)


def usage_text(answer: wire.GetUsageResponse, by: tuple[str, ...], look: OutputLook) -> str:
    """Both tables, and from when to when. The column of normalised hours stands there only where
    GPUs have several speeds, and that of idle hours only where some were idle.
    """
    begin, end = (
        absolute(from_timestamp(at), look) for at in (answer.from_time, answer.until_time)
    )
    text = f"{begin} to {end}, in GPU-hours\n"
    rows = [usage_facts(one, by) for one in answer.usages]
    if all(row[_NORMALISED] == row["gpu_hours"] for row in rows):
        rows = [{key: row[key] for key in row if key != _NORMALISED} for row in rows]
    if not any(row[_IDLE] for row in rows):
        rows = [{key: row[key] for key in row if key != _IDLE} for row in rows]
    text += rows_text(rows, by, look)
    if answer.pools:
        pools = [pool_facts(one, by) for one in answer.pools]
        text += "\n" + rows_text(pools, ("day", "pool"), look)
    return text


def usage_csv(answer: wire.GetUsageResponse, by: tuple[str, ...]) -> str:
    """The groups, one a line; the pools are another table, and not in it."""
    names = list(usage_facts(wire.Usage(), by))
    return rows_csv([usage_facts(one, by) for one in answer.usages], names)
